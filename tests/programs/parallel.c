// SPDX-License-Identifier: Apache-2.0
/* parallel WAY FILE: each rank writes its block of one shared file, and all read the neighbour's back.
   WAY is mpiio or hdf5 (with -DHDF5), independent or collective: mpiio-collective. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef HDF5
#include <hdf5.h>
#endif

enum { BLOCK = 256 << 10 };
static char block[BLOCK];
static int rank, ranks;

static void check(const char *what, int fine) {
  if (fine)
    return;
  fprintf(stderr, "rank %d: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check_block(int of) {
  for (int i = 0; i < BLOCK; i++)
    check("another rank's bytes are wrong", block[i] == (char)(of + 1));
}

static void mpiio(const char *path, int collective) {
  MPI_File file;
  MPI_Status status;
  int next = (rank + 1) % ranks;
  check("open", !MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
  MPI_Offset at = (MPI_Offset)rank * BLOCK, there = (MPI_Offset)next * BLOCK;
  int error = collective ? MPI_File_write_at_all(file, at, block, BLOCK, MPI_BYTE, &status)
                         : MPI_File_write_at(file, at, block, BLOCK, MPI_BYTE, &status);
  check("write", !error);
  check("sync", !MPI_File_sync(file));
  MPI_Barrier(MPI_COMM_WORLD);
  check("read", !MPI_File_read_at(file, there, block, BLOCK, MPI_BYTE, &status));
  check_block(next);
  check("close", !MPI_File_close(&file));
}

#ifdef HDF5
static void hdf5(const char *path, int collective) {
  hsize_t whole = (hsize_t)ranks * BLOCK, mine = BLOCK, at = (hsize_t)rank * BLOCK;
  hid_t access = H5Pcreate(H5P_FILE_ACCESS), move = H5Pcreate(H5P_DATASET_XFER);
  H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
  H5Pset_dxpl_mpio(move, collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT);
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
  check("H5Fcreate", file >= 0);
  hid_t space = H5Screate_simple(1, &whole, NULL), part = H5Screate_simple(1, &mine, NULL);
  hid_t set = H5Dcreate(file, "x", H5T_NATIVE_CHAR, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Sselect_hyperslab(space, H5S_SELECT_SET, &at, NULL, &mine, NULL);
  check("H5Dwrite", H5Dwrite(set, H5T_NATIVE_CHAR, part, space, move, block) >= 0);
  H5Fflush(file, H5F_SCOPE_GLOBAL);
  memset(block, 0, BLOCK);
  check("H5Dread", H5Dread(set, H5T_NATIVE_CHAR, part, space, move, block) >= 0);
  check_block(rank);
  H5Dclose(set);
  check("H5Fclose", H5Fclose(file) >= 0);
}
#endif

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  check("parallel WAY FILE", argc == 3);
  memset(block, rank + 1, BLOCK);
  int collective = strstr(argv[1], "collective") != NULL;
#ifdef HDF5
  if (!strncmp(argv[1], "hdf5", 4))
    hdf5(argv[2], collective);
  else
#endif
    mpiio(argv[2], collective);
  MPI_Finalize();
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* What is to be known of a command before it starts: where its file is, whether it needs MPI, and which of a launcher's
   words is the program.

   Invariant: files are read with bounds on every number in them, and a small number of look-ups. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* The file that a word would start, as execvp finds it; false when PATH has none.  A word with a slash is not looked up. */
bool penstock_program_find(char *ret, size_t room, const char *word);

/* Does a file, or a library that it needs, need libmpi? */
bool penstock_program_needs_mpi(const char *path);

/* Is this a launcher of parallel programs (mpirun, srun ...)? */
bool penstock_program_is_launcher(const char *word);

/* Of a launcher's words, the number of the one that is the program; 0 when it cannot be told. */
int penstock_program_launched(char *const *argv);

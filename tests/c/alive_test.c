// SPDX-License-Identifier: Apache-2.0
// uses: launch/alive.c
/* Which processes still live: by number and start, so that a number that came around again is another process. */
#include <signal.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"
#include "launch/alive.h"

static uint64_t own_namespace(void) {
  struct stat st;
  CHECK_EQ(0, stat("/proc/self/ns/pid", &st));
  return st.st_ino;
}

static void test_b07_a_process_is_known_by_number_and_start(void) {
  struct penstock_alive *a = penstock_alive_open();
  uint64_t space = own_namespace();
  pid_t pid = fork();
  if (pid == 0) {
    pause();
    _exit(0);
  }
  uint64_t ticks = penstock_start_ticks((uint32_t)pid);
  CHECK(ticks > 0);
  CHECK(penstock_alive(a, (uint32_t)pid, ticks, space));
  CHECK(penstock_alive(a, (uint32_t)pid, ticks, 0));
  CHECK(!penstock_alive(a, (uint32_t)pid, ticks + 1, space)); /* the number came around */
  kill(pid, SIGKILL);
  siginfo_t info;
  CHECK_EQ(0, waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT));
  CHECK(!penstock_alive(a, (uint32_t)pid, ticks, space)); /* a zombie is dead */
  CHECK_EQ(pid, waitpid(pid, NULL, 0));
  CHECK(!penstock_alive(a, (uint32_t)pid, ticks, space));
  penstock_alive_close(a);
}

static void processes_of_others_live(void) {
  struct penstock_alive *a = penstock_alive_open();
  CHECK(penstock_alive(a, 1, penstock_start_ticks(1), own_namespace())); /* whoever it belongs to */
  penstock_alive_close(a);
}

int main(void) {
  test_b07_a_process_is_known_by_number_and_start();
  processes_of_others_live();
  return 0;
}

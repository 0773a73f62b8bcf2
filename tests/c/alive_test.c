// SPDX-License-Identifier: Apache-2.0
// uses: launch/alive.c
/* Which processes still live: by number and start, so that a number that came around again is another process. */
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mount.h>
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

/* Where /proc is mounted with hidepid, another user's process is there all the same. */
static void processes_that_proc_hides_live(void) {
  uint32_t parent = (uint32_t)getpid();
  uint64_t ticks = penstock_start_ticks(parent), space = own_namespace();
  pid_t dead = fork();
  if (dead == 0)
    _exit(0);
  CHECK_EQ(dead, waitpid(dead, NULL, 0));
  pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("proc", "/proc", "proc", 0, "hidepid=2"))
      _exit(0); /* not root: nothing to be tested */
    CHECK(!setgroups(0, NULL) && !setgid(61003) && !setuid(61003));
    struct penstock_alive *a = penstock_alive_open();
    CHECK_EQ(0, penstock_start_ticks(parent));
    CHECK(penstock_alive(a, parent, ticks, space));
    CHECK(!penstock_alive(a, (uint32_t)dead, ticks, space));
    CHECK(!penstock_alive(a, 0, ticks, space));
    CHECK(!penstock_alive(a, UINT32_MAX, ticks, space));
    penstock_alive_close(a);
    _exit(0);
  }
  int status;
  CHECK_EQ(child, waitpid(child, &status, 0));
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
  test_b07_a_process_is_known_by_number_and_start();
  processes_of_others_live();
  processes_that_proc_hides_live();
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* The exec family and posix_spawn: the program goes as it was asked for, its environment as environment.c says.  Often
   called in a vfork child, on its parent's stack and memory: nothing is kept, nothing allocated. */
#include <alloca.h>
#include "interpose/wrap.h"

extern char **environ;

/* `envp` or a better one in the caller's frame. */
#define ENVIRONMENT(envp) \
  ({ \
    char *const *given_ = (envp); \
    size_t room_ = penstock_environment_room(given_); \
    room_ ? penstock_environment_fill(alloca(room_), room_, given_) : (char **)(uintptr_t)given_; \
  })

#define SEEN(folder, name, pass) \
  struct penstock_call call; \
  if (!penstock_enter_path(&call, PENSTOCK_OP_EXEC, 0, folder, name)) \
    return pass; \
  if (penstock_before(&call)) \
    return (int)penstock_answer(&call); \
  int result = pass; \
  penstock_after(&call, result, result != 0); \
  return result;

PENSTOCK_EXPORT int execve(const char *path, char *const argv[], char *const envp[]) {
  penstock_begun();
  char **env = ENVIRONMENT(envp);
  SEEN(AT_FDCWD, path, penstock_real.execve(path, argv, env))
}

PENSTOCK_EXPORT int execveat(int dirfd, const char *path, char *const argv[], char *const envp[], int flags) {
  penstock_begun();
  char **env = ENVIRONMENT(envp);
  SEEN(dirfd, path, penstock_real.execveat(dirfd, path, argv, env, flags))
}

PENSTOCK_EXPORT int fexecve(int fd, char *const argv[], char *const envp[]) {
  penstock_begun();
  return penstock_real.fexecve(fd, argv, ENVIRONMENT(envp));
}

/* Those that take the environment as it stands. */
static int run(const char *path, char *const argv[]) {
  char **env = ENVIRONMENT(environ);
  SEEN(AT_FDCWD, path, env == environ ? penstock_real.execv(path, argv) : penstock_real.execve(path, argv, env))
}

/* By the search path: which file it will be is not known before. */
static int run_found(const char *name, char *const argv[]) {
  char **env = ENVIRONMENT(environ);
  return env == environ ? penstock_real.execvp(name, argv) : penstock_real.execvpe(name, argv, env);
}

PENSTOCK_EXPORT int execv(const char *path, char *const argv[]) {
  penstock_begun();
  return run(path, argv);
}

PENSTOCK_EXPORT int execvp(const char *path, char *const argv[]) {
  penstock_begun();
  return run_found(path, argv);
}

PENSTOCK_EXPORT int execvpe(const char *path, char *const argv[], char *const envp[]) {
  penstock_begun();
  return penstock_real.execvpe(path, argv, ENVIRONMENT(envp));
}

/* The words that follow as arguments, in an array in the caller's frame; *list stands behind the NULL. */
#define WORDS(name, first, list) \
  va_list count_; \
  size_t words_ = 1; \
  va_copy(count_, list); \
  while ((first) && words_ < 0x10000 && va_arg(count_, char *)) \
    words_++; \
  va_end(count_); \
  char **name = alloca((words_ + 1) * sizeof(char *)); \
  name[0] = (char *)(uintptr_t)(first); \
  for (size_t i_ = 1; i_ <= words_; i_++) \
    name[i_] = name[i_ - 1] ? va_arg(list, char *) : NULL; \
  name[words_] = NULL;

PENSTOCK_EXPORT int execl(const char *path, const char *word, ...) {
  va_list list;
  va_start(list, word);
  WORDS(argv, word, list)
  va_end(list);
  penstock_begun();
  return run(path, argv);
}

PENSTOCK_EXPORT int execlp(const char *path, const char *word, ...) {
  va_list list;
  va_start(list, word);
  WORDS(argv, word, list)
  va_end(list);
  penstock_begun();
  return run_found(path, argv);
}

PENSTOCK_EXPORT int execle(const char *path, const char *word, ...) {
  va_list list;
  va_start(list, word);
  WORDS(argv, word, list)
  char *const *envp = va_arg(list, char *const *);
  va_end(list);
  return execve(path, argv, (char *const *)envp);
}

PENSTOCK_EXPORT int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                                const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]) {
  penstock_begun();
  char **env = ENVIRONMENT(envp);
  SEEN(AT_FDCWD, path, penstock_real.posix_spawn(pid, path, actions, attributes, argv, env))
}

PENSTOCK_EXPORT int posix_spawnp(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                                 const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]) {
  penstock_begun();
  return penstock_real.posix_spawnp(pid, path, actions, attributes, argv, ENVIRONMENT(envp));
}

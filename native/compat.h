// SPDX-License-Identifier: Apache-2.0
/* Lets what is preloaded into users' programs run with glibc 2.28, though it is built on a newer one.

   glibc 2.34 moved libdl and libpthread into libc and gave their functions a new version; a library built there asks
   for the new one, which no older system has.  The old versions are still in every newer libc, so they are what we
   ask for.  Included ahead of everything (-include) in libpenstock.so, which is also linked with libdl.so.2 by its
   name: up to 2.33 dlsym lives there, and from 2.34 on it is an empty shell that exists for this purpose.

   Not mended here, because no older version of them exists: stat, lstat, fstat, fstatat, mknod (2.33; before they were
   inlined calls of __xstat), gettid (2.30), getdents64 (2.30), close_range (2.34), _Fork (2.34), tgkill (2.30),
   pidfd_open (2.36).  Those are made as raw system calls, or looked up with dlsym at run time and may be missing.
   tests/native/test_elf.py reads the finished library and names what slipped through. */
#pragma once

#if defined(__linux__) && defined(__GLIBC__) == 0
#include <features.h> /* defines __GLIBC__; musl's does not */
#endif

#if defined(__GLIBC__) && !defined(__ASSEMBLER__)
#if defined(__x86_64__)
#define PENSTOCK_OLD(symbol) __asm__(".symver " #symbol "," #symbol "@GLIBC_2.2.5");
#define PENSTOCK_OLD_SINCE(symbol, version) __asm__(".symver " #symbol "," #symbol "@GLIBC_" version);
#elif defined(__aarch64__)
/* The port began with 2.17: whatever is older there has that version. */
#define PENSTOCK_OLD(symbol) __asm__(".symver " #symbol "," #symbol "@GLIBC_2.17");
#define PENSTOCK_OLD_SINCE(symbol, version) PENSTOCK_OLD(symbol)
#else
#define PENSTOCK_OLD(symbol)
#define PENSTOCK_OLD_SINCE(symbol, version)
#endif

PENSTOCK_OLD(dlsym)
PENSTOCK_OLD(dlvsym)
PENSTOCK_OLD(dlopen)
PENSTOCK_OLD(dlclose)
PENSTOCK_OLD(dlerror)
PENSTOCK_OLD(dladdr)
PENSTOCK_OLD_SINCE(dlinfo, "2.3.3")
PENSTOCK_OLD(pthread_create)
PENSTOCK_OLD(pthread_join)
PENSTOCK_OLD(pthread_detach)
PENSTOCK_OLD(pthread_once)
PENSTOCK_OLD(pthread_key_create)
PENSTOCK_OLD(pthread_key_delete)
PENSTOCK_OLD(pthread_getspecific)
PENSTOCK_OLD(pthread_setspecific)
PENSTOCK_OLD(pthread_sigmask)
PENSTOCK_OLD(pthread_kill)
PENSTOCK_OLD(pthread_cancel)
PENSTOCK_OLD(pthread_testcancel)
PENSTOCK_OLD(pthread_mutex_trylock)
PENSTOCK_OLD(sem_init)
PENSTOCK_OLD(sem_post)
PENSTOCK_OLD(sem_wait)
#endif

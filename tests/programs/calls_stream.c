// SPDX-License-Identifier: Apache-2.0
/* Snippets of calls on FILEs. */
#include "calls.h"

#undef getc
#undef putc

static FILE *reading(void) { return fopen(at("file"), "r+"); }

CASE(fopen) {
  static const char *const modes[] = {"r", "w+", "a", "wx", "r+e", "q"};
  for (int i = 0; i < 6; i++) {
    FILE *f = GOOD_POINTER(fopen(at(i == 3 ? "new" : "file"), modes[i]));
    if (!f)
      continue;
    SAY(fputs("hi", f));
    SAY(ftell(f));
    SAY(fclose(f));
  }
  GOOD_POINTER(fopen(at("missing/x"), "r"));
  GOOD_POINTER(fopen((const char *)8, "r"));
}
CASE(fopen64) { SAY(fclose(GOOD_POINTER(fopen64(at("file"), "r")))); }
#define FREOPEN_CASE(name) \
  CASE(name) { \
    FILE *f = reading(); \
    SAY(fgetc(f)); \
    f = GOOD_POINTER(name(at("other"), "r", f)); \
    SAY(fgetc(f)); \
    f = GOOD_POINTER(name(NULL, "r", f)); \
    SAY(f ? fgetc(f) : 0); \
    f = f ? GOOD_POINTER(name(at("missing"), "r", f)) : NULL; \
    if (f) \
      fclose(f); \
  }
FREOPEN_CASE(freopen)
FREOPEN_CASE(freopen64)
CASE(fclose) {
  FILE *f = fdopen(open_file(), "w");
  SAY(fwrite("hello", 1, 5, f));
  SAY(fclose(f));
  char *memory = NULL;
  size_t size = 0;
  f = open_memstream(&memory, &size);
  SAY(fputs("in memory", f));
  SAY(fclose(f));
  say("  %s\n", memory);
  free(memory);
}
#define TMPFILE_CASE(name) \
  CASE(name) { \
    FILE *f = GOOD_POINTER(name()); \
    SAY(fprintf(f, "%d", 5)); \
    rewind(f); \
    SAY(fgetc(f)); \
    SAY(fclose(f)); \
  }
TMPFILE_CASE(tmpfile)
TMPFILE_CASE(tmpfile64)

/* A call on a FILE that reads and writes `file`; then where it stands, and what is in the file. */
#define STREAM_CASE(symbol, call) \
  CASE(symbol) { \
    char buffer[64] = {0}; \
    wchar_t wide[16] = {0}; \
    char *line = NULL; \
    size_t room = 0; \
    int number = 0; \
    FILE *f = reading(); \
    (void)buffer, (void)wide, (void)number; \
    SAY(call); \
    SAY(fflush(f)); \
    say("  at %ld, '%s' %s %ls %d\n", ftell(f), buffer, line ? line : "", wide, number); \
    SAY(call); \
    SAY(fclose(f)); \
    free(line); \
    (void)room; \
  }
SYMBOL(size_t, fread_chk, "__fread_chk", (void *, size_t, size_t, size_t, FILE *));
SYMBOL(size_t, fread_unlocked_chk, "__fread_unlocked_chk", (void *, size_t, size_t, size_t, FILE *));
SYMBOL(char *, fgets_chk, "__fgets_chk", (char *, size_t, int, FILE *));
SYMBOL(char *, fgets_unlocked_chk, "__fgets_unlocked_chk", (char *, size_t, int, FILE *));
SYMBOL(wchar_t *, fgetws_chk, "__fgetws_chk", (wchar_t *, size_t, int, FILE *));
SYMBOL(wchar_t *, fgetws_unlocked_chk, "__fgetws_unlocked_chk", (wchar_t *, size_t, int, FILE *));
SYMBOL(int, io_getc, "_IO_getc", (FILE *));
SYMBOL(int, io_putc, "_IO_putc", (int, FILE *));
STREAM_CASE(fread, fread(buffer, 3, 2, f))
STREAM_CASE(fread_unlocked, (fread_unlocked)(buffer, 1, 5, f))
STREAM_CASE(__fread_chk, fread_chk(buffer, 64, 5, 2, f))
STREAM_CASE(__fread_unlocked_chk, fread_unlocked_chk(buffer, 64, 5, 9, f))
STREAM_CASE(fwrite, fwrite("hello", 5, 1, f))
STREAM_CASE(fwrite_unlocked, (fwrite_unlocked)("hello", 1, 5, f))
STREAM_CASE(fgetc, fgetc(f))
STREAM_CASE(fgetc_unlocked, (fgetc_unlocked)(f))
STREAM_CASE(getc, (getc)(f))
STREAM_CASE(getc_unlocked, (getc_unlocked)(f))
STREAM_CASE(_IO_getc, io_getc(f))
STREAM_CASE(fgetwc, fgetwc(f))
STREAM_CASE(fgetwc_unlocked, fgetwc_unlocked(f))
STREAM_CASE(getwc, getwc(f))
STREAM_CASE(getwc_unlocked, getwc_unlocked(f))
STREAM_CASE(getw, getw(f))
STREAM_CASE(fgets, fgets(buffer, 6, f) != NULL)
STREAM_CASE(fgets_unlocked, fgets_unlocked(buffer, 60, f) != NULL)
STREAM_CASE(__fgets_chk, fgets_chk(buffer, 64, 6, f) != NULL)
STREAM_CASE(__fgets_unlocked_chk, fgets_unlocked_chk(buffer, 64, 6, f) != NULL)
STREAM_CASE(fgetws, fgetws(wide, 6, f) != NULL)
STREAM_CASE(fgetws_unlocked, fgetws_unlocked(wide, 6, f) != NULL)
STREAM_CASE(__fgetws_chk, fgetws_chk(wide, 16, 6, f) != NULL)
STREAM_CASE(__fgetws_unlocked_chk, fgetws_unlocked_chk(wide, 16, 6, f) != NULL)
SYMBOL(ssize_t, own_getdelim, "__getdelim", (char **, size_t *, int, FILE *));
#define LINE_CASE(symbol, call) \
  CASE2(symbol, NOT_IN_VFORK) { \
    char *line = NULL; \
    size_t room = 0; \
    FILE *f = reading(); \
    for (int i = 0; i < 3; i++) { \
      SAY(call); \
      say("  %s\n", line); \
    } \
    SAY(fclose(f)); \
    free(line); \
  }
LINE_CASE(getline, getline(&line, &room, f))
LINE_CASE(getdelim, getdelim(&line, &room, '3', f))
LINE_CASE(__getdelim, own_getdelim(&line, &room, ' ', f))
STREAM_CASE(fputc, fputc('A', f))
STREAM_CASE(fputc_unlocked, (fputc_unlocked)('A', f))
STREAM_CASE(putc, (putc)('A', f))
STREAM_CASE(putc_unlocked, (putc_unlocked)('A', f))
STREAM_CASE(_IO_putc, io_putc('A', f))
STREAM_CASE(fputwc, fputwc(L'A', f))
STREAM_CASE(fputwc_unlocked, fputwc_unlocked(L'A', f))
STREAM_CASE(putwc, putwc(L'A', f))
STREAM_CASE(putwc_unlocked, putwc_unlocked(L'A', f))
STREAM_CASE(putw, putw(0x41424344, f))
STREAM_CASE(fputs, fputs("text", f) >= 0)
STREAM_CASE(fputs_unlocked, fputs_unlocked("text", f) >= 0)
STREAM_CASE(fputws, fputws(L"text", f) >= 0)
STREAM_CASE(fputws_unlocked, fputws_unlocked(L"text", f) >= 0)
STREAM_CASE(fflush, fflush(f))
STREAM_CASE(fflush_unlocked, fflush_unlocked(f))
STREAM_CASE(fseek, fseek(f, 4, SEEK_CUR))
STREAM_CASE(fseeko, fseeko(f, -1, SEEK_SET))
STREAM_CASE(fseeko64, fseeko64(f, -2, SEEK_END))
STREAM_CASE(ftell, ftell(f))
STREAM_CASE(ftello, ftello(f))
STREAM_CASE(ftello64, ftello64(f))
STREAM_CASE(rewind, (fgetc(f), rewind(f), 0))
CASE(fgetpos) {
  fpos_t place;
  FILE *f = reading();
  fgetc(f);
  SAY(fgetpos(f, &place));
  fgetc(f);
  SAY(fsetpos(f, &place));
  SAY(fgetc(f));
  fclose(f);
}
CASE(fsetpos) {
  fpos_t place;
  FILE *f = reading();
  fgetpos(f, &place);
  SAY(fsetpos(f, &place));
  fclose(f);
}
CASE(fgetpos64) {
  fpos64_t place;
  FILE *f = reading();
  SAY(fgetpos64(f, &place));
  fclose(f);
}
CASE(fsetpos64) {
  fpos64_t place;
  FILE *f = reading();
  fgetpos64(f, &place);
  SAY(fsetpos64(f, &place));
  fclose(f);
}

/* ---- formatted ---- */

#define SCAN(name, type) SYMBOL(int, my_##name, #name, (FILE *, const type *, ...))
#define LIST(name, type) SYMBOL(int, my_##name, #name, (FILE *, const type *, va_list))
#define CHECKED(name, type) SYMBOL(int, my_##name, #name, (FILE *, int, const type *, ...))
#define CHECKED_LIST(name, type) SYMBOL(int, my_##name, #name, (FILE *, int, const type *, va_list))
SCAN(fprintf, char);
SCAN(fwprintf, wchar_t);
SCAN(fscanf, char);
SCAN(fwscanf, wchar_t);
SCAN(__isoc99_fscanf, char);
SCAN(__isoc99_fwscanf, wchar_t);
LIST(vfprintf, char);
LIST(vfwprintf, wchar_t);
LIST(vfscanf, char);
LIST(vfwscanf, wchar_t);
LIST(__isoc99_vfscanf, char);
LIST(__isoc99_vfwscanf, wchar_t);
CHECKED(__fprintf_chk, char);
CHECKED(__fwprintf_chk, wchar_t);
CHECKED_LIST(__vfprintf_chk, char);
CHECKED_LIST(__vfwprintf_chk, wchar_t);

#define WITH_LIST(symbol, type) \
  static int list_##symbol(FILE *f, const type *format, ...) { \
    va_list list; \
    va_start(list, format); \
    int result = my_##symbol(f, format, list); \
    va_end(list); \
    return result; \
  }
#define WITH_CHECKED_LIST(symbol, type) \
  static int list_##symbol(FILE *f, const type *format, ...) { \
    va_list list; \
    va_start(list, format); \
    int result = my_##symbol(f, 1, format, list); \
    va_end(list); \
    return result; \
  }
WITH_LIST(vfprintf, char)
WITH_LIST(vfwprintf, wchar_t)
WITH_LIST(vfscanf, char)
WITH_LIST(vfwscanf, wchar_t)
WITH_LIST(__isoc99_vfscanf, char)
WITH_LIST(__isoc99_vfwscanf, wchar_t)
WITH_CHECKED_LIST(__vfprintf_chk, char)
WITH_CHECKED_LIST(__vfwprintf_chk, wchar_t)
STREAM_CASE(fprintf, my_fprintf(f, "%d-%s-%.2f", 42, "x", 1.5))
STREAM_CASE(vfprintf, list_vfprintf(f, "%d-%s-%.2f", 42, "x", 1.5))
STREAM_CASE(__fprintf_chk, my___fprintf_chk(f, 1, "%d-%s", 42, "x"))
STREAM_CASE(__vfprintf_chk, list___vfprintf_chk(f, "%d-%s", 42, "x"))
STREAM_CASE(fwprintf, my_fwprintf(f, L"%d-%ls", 42, L"x"))
STREAM_CASE(vfwprintf, list_vfwprintf(f, L"%d-%ls", 42, L"x"))
STREAM_CASE(__fwprintf_chk, my___fwprintf_chk(f, 1, L"%d", 42))
STREAM_CASE(__vfwprintf_chk, list___vfwprintf_chk(f, L"%d", 42))
STREAM_CASE(fscanf, my_fscanf(f, "%4d%9s", &number, buffer))
STREAM_CASE(vfscanf, list_vfscanf(f, "%4d%9s", &number, buffer))
STREAM_CASE(__isoc99_fscanf, my___isoc99_fscanf(f, "%4d%9s", &number, buffer))
STREAM_CASE(__isoc99_vfscanf, list___isoc99_vfscanf(f, "%4d%9s", &number, buffer))
STREAM_CASE(fwscanf, my_fwscanf(f, L"%4d%9s", &number, buffer))
STREAM_CASE(vfwscanf, list_vfwscanf(f, L"%4d%9s", &number, buffer))
STREAM_CASE(__isoc99_fwscanf, my___isoc99_fwscanf(f, L"%4d%9s", &number, buffer))
STREAM_CASE(__isoc99_vfwscanf, list___isoc99_vfwscanf(f, L"%4d%9s", &number, buffer))

/* ---- by descriptor ---- */

SYMBOL(int, my_dprintf_chk, "__dprintf_chk", (int, int, const char *, ...));
SYMBOL(int, my_vdprintf_chk, "__vdprintf_chk", (int, int, const char *, va_list));
static int list_vdprintf(int fd, int checked, const char *format, ...) {
  va_list list;
  va_start(list, format);
  int result = checked ? my_vdprintf_chk(fd, 1, format, list) : vdprintf(fd, format, list);
  va_end(list);
  return result;
}
#define DPRINTF_CASE(symbol, call) \
  CASE(symbol) { \
    int fd = open_file(); \
    SAY(call); \
    say("  %lld\n", offset(fd)); \
    close(fd); \
    SAY_CLOSED(call); \
  }
DPRINTF_CASE(dprintf, dprintf(fd, "%d%s", 5, "abc"))
DPRINTF_CASE(vdprintf, list_vdprintf(fd, 0, "%d%s", 5, "abc"))
DPRINTF_CASE(__dprintf_chk, my_dprintf_chk(fd, 1, "%d%s", 5, "abc"))
DPRINTF_CASE(__vdprintf_chk, list_vdprintf(fd, 1, "%d%s", 5, "abc"))

// SPDX-License-Identifier: Apache-2.0
/* Snippets of calls on stdin and stdout, which no parameter names. */
#include "calls.h"

#undef getchar
#undef putchar

#define STANDARD_CASE(symbol, stream, call) \
  CASE2(symbol, ALONE) { \
    char buffer[64] = {0}; \
    int number = 0; \
    FILE *was = stream; \
    stream = fopen(at("file"), "r+"); \
    SAY(call); \
    SAY(fflush(stream)); \
    say("  at %ld, '%s' %d\n", ftell(stream), buffer, number); \
    SAY(call); \
    SAY(fclose(stream)); \
    stream = was; \
    (void)buffer; \
  }
#define IN(symbol, call) STANDARD_CASE(symbol, stdin, call)
#define OUT(symbol, call) STANDARD_CASE(symbol, stdout, call)

SYMBOL(char *, my_gets, "gets", (char *));
SYMBOL(char *, my_gets_chk, "__gets_chk", (char *, size_t));
IN(getchar, (getchar)())
IN(getchar_unlocked, (getchar_unlocked)())
IN(getwchar, (getwchar)())
IN(getwchar_unlocked, (getwchar_unlocked)())
IN(gets, my_gets(buffer) != NULL)
IN(__gets_chk, my_gets_chk(buffer, 64) != NULL)
OUT(putchar, (putchar)('A'))
OUT(putchar_unlocked, (putchar_unlocked)('A'))
OUT(putwchar, (putwchar)(L'A'))
OUT(putwchar_unlocked, (putwchar_unlocked)(L'A'))
OUT(puts, puts("text") >= 0)

#define VARYING(symbol, type) SYMBOL(int, my_##symbol, #symbol, (const type *, ...))
#define CHECKED(symbol, type) SYMBOL(int, my_##symbol, #symbol, (int, const type *, ...))
#define LIST(symbol, type) \
  SYMBOL(int, my_##symbol, #symbol, (const type *, va_list)); \
  static int list_##symbol(const type *format, ...) { \
    va_list list; \
    va_start(list, format); \
    int result = my_##symbol(format, list); \
    va_end(list); \
    return result; \
  }
#define CHECKED_LIST(symbol, type) \
  SYMBOL(int, my_##symbol, #symbol, (int, const type *, va_list)); \
  static int list_##symbol(const type *format, ...) { \
    va_list list; \
    va_start(list, format); \
    int result = my_##symbol(1, format, list); \
    va_end(list); \
    return result; \
  }
VARYING(printf, char);
VARYING(wprintf, wchar_t);
VARYING(scanf, char);
VARYING(wscanf, wchar_t);
VARYING(__isoc99_scanf, char);
VARYING(__isoc99_wscanf, wchar_t);
CHECKED(__printf_chk, char);
CHECKED(__wprintf_chk, wchar_t);
LIST(vprintf, char)
LIST(vwprintf, wchar_t)
LIST(vscanf, char)
LIST(vwscanf, wchar_t)
LIST(__isoc99_vscanf, char)
LIST(__isoc99_vwscanf, wchar_t)
CHECKED_LIST(__vprintf_chk, char)
CHECKED_LIST(__vwprintf_chk, wchar_t)

OUT(printf, my_printf("%d-%s", 42, "x"))
OUT(vprintf, list_vprintf("%d-%s", 42, "x"))
OUT(__printf_chk, my___printf_chk(1, "%d-%s", 42, "x"))
OUT(__vprintf_chk, list___vprintf_chk("%d-%s", 42, "x"))
OUT(wprintf, my_wprintf(L"%d-%s", 42, "x"))
OUT(vwprintf, list_vwprintf(L"%d-%s", 42, "x"))
OUT(__wprintf_chk, my___wprintf_chk(1, L"%d-%s", 42, "x"))
OUT(__vwprintf_chk, list___vwprintf_chk(L"%d-%s", 42, "x"))
IN(scanf, my_scanf("%4d%9s", &number, buffer))
IN(vscanf, list_vscanf("%4d%9s", &number, buffer))
IN(__isoc99_scanf, my___isoc99_scanf("%4d%9s", &number, buffer))
IN(__isoc99_vscanf, list___isoc99_vscanf("%4d%9s", &number, buffer))
IN(wscanf, my_wscanf(L"%4d%9s", &number, buffer))
IN(vwscanf, list_vwscanf(L"%4d%9s", &number, buffer))
IN(__isoc99_wscanf, my___isoc99_wscanf(L"%4d%9s", &number, buffer))
IN(__isoc99_vwscanf, list___isoc99_vwscanf(L"%4d%9s", &number, buffer))

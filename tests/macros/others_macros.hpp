// SPDX-License-Identifier: Apache-2.0
// Macros with lower-case names or common words that other headers define, in their original forms. A header
// of tidemark must compile behind all of them.

// Qt, without QT_NO_KEYWORDS (qtmetamacros.h, qforeach.h, qglobal.h).
#define slots
#define signals public
#define emit
#define foreach(variable, container) for (variable : container)
#define forever for (;;)

// <windows.h> (minwindef.h, rpcndr.h, winerror.h, wingdi.h, winnt.h, winuser.h, commdlg.h's dlgs.h).
#define small char
#define hyper long long
#define near
#define far
#define NEAR
#define FAR
#define pascal
#define cdecl
#define min(a, b) (((a) < (b)) ? (a) : (b))
#define max(a, b) (((a) > (b)) ? (a) : (b))
#define interface struct
#define IN
#define OUT
#define OPTIONAL
#define CONST const
#define VOID void
#define TRUE 1
#define FALSE 0
#define STRICT 1
#define ERROR 0
#define NO_ERROR 0L
#define DELETE (0x00010000L)
#define IGNORE 0
#define ABSOLUTE 1
#define RELATIVE 2
#define TRANSPARENT 1
#define OPAQUE 2
#define DIFFERENCE 11
#define DOMAIN 1
#define OVERFLOW 3
#define UNDERFLOW 4
#define THIS void
#define PURE = 0
#define CALLBACK
#define WINAPI
#define Yield()
#define GetObject GetObjectA
#define GetMessage GetMessageA
#define SendMessage SendMessageA
#define CreateFile CreateFileA
#define DeleteFile DeleteFileA
#define GetCurrentTime() GetTickCount()
#define CopyMemory(to, from, bytes) memcpy((to), (from), (bytes))
#define MoveMemory(to, from, bytes) memmove((to), (from), (bytes))
#define FillMemory(to, bytes, fill) memset((to), (fill), (bytes))
#define ZeroMemory(to, bytes) memset((to), 0, (bytes))
#define MemoryBarrier() __sync_synchronize()
#define GetFreeSpace(w) (0x100000L)
#define grp1 0x0430
#define rad1 0x0420
#define lst1 0x0460

// Apple's <AssertMacros.h>, without __ASSERT_MACROS_DEFINE_VERSIONS_WITHOUT_UNDERSCORES=0.
#define check(assertion)
#define check_noerr(error)
#define check_noerr_string(error, message)
#define check_string(assertion, message)
#define check_compile_time(expression) extern int compile_time_assert_failed[(expression) ? 1 : -1]
#define verify(assertion) (void)(assertion)
#define verify_action(assertion, action) (void)(assertion)
#define verify_noerr(error) (void)(error)
#define verify_noerr_action(error, action) (void)(error)
#define verify_noerr_string(error, message) (void)(error)
#define verify_string(assertion, message) (void)(assertion)
#define ncheck(assertion)
#define ncheck_string(assertion, message)
#define nverify(assertion) (void)(assertion)
#define nverify_string(assertion, message) (void)(assertion)
#define require(assertion, label) \
  do {                            \
    if (!(assertion)) goto label; \
  } while (0)
#define require_action(assertion, label, action) require(assertion, label)
#define require_action_quiet(assertion, label, action) require(assertion, label)
#define require_action_string(assertion, label, action, message) require(assertion, label)
#define require_compile_time(expression) check_compile_time(expression)
#define require_noerr(error, label) require((error) == 0, label)
#define require_noerr_action(error, label, action) require((error) == 0, label)
#define require_noerr_action_quiet(error, label, action) require((error) == 0, label)
#define require_noerr_action_string(error, label, action, message) require((error) == 0, label)
#define require_noerr_quiet(error, label) require((error) == 0, label)
#define require_noerr_string(error, label, message) require((error) == 0, label)
#define require_quiet(assertion, label) require(assertion, label)
#define require_string(assertion, label, message) require(assertion, label)
#define nrequire(assertion, label) require(!(assertion), label)
#define nrequire_action(assertion, label, action) require(!(assertion), label)
#define nrequire_quiet(assertion, label) require(!(assertion), label)
#define nrequire_string(assertion, label, message) require(!(assertion), label)
#define debug_string(message)

// <sys/sysmacros.h>, which <sys/types.h> included before glibc 2.28.
#define major(device) gnu_dev_major(device)
#define minor(device) gnu_dev_minor(device)
#define makedev(first, second) gnu_dev_makedev(first, second)

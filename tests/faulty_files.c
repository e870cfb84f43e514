/* File operations that fail when they are told to: a library to be preloaded.

   Counted are the operations that change files below one folder: opening for a new file or a
   shorter one, writing, renaming, linking, removing, making folders, bringing to the disk, closing
   what was written. `faulty_arm` says which of them fails and how; see faulty_files.py. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { KILL, HALT, TORN, ERROR, FULL }; /* the names of faulty_files.py, in this order */
enum { PASS, FAIL, HALF };
enum { READ_ONLY = 1, WRITTEN };
#define DESCRIPTORS 4096

static char root[PATH_MAX];
static int armed, kind, halted, is_full;
static long fail_at, counted;
static char failed[64];
static char trace[1 << 16]; /* the first letter of each operation */
static unsigned char of_root[DESCRIPTORS];

void faulty_arm(const char *folder, long number, int how) {
    snprintf(root, sizeof root, "%s", folder);
    memset(of_root, 0, sizeof of_root);
    fail_at = number, kind = how, counted = 0, halted = is_full = 0, failed[0] = 0;
    memset(trace, 0, sizeof trace);
    armed = 1;
}

long faulty_disarm(void) {
    armed = 0;
    return counted;
}

const char *faulty_failed(void) { return failed; }

const char *faulty_trace(void) { return trace; }

/* Whether an operation goes on; `takes_room` if it needs some on the disk. */
static int verdict(const char *what, int takes_room) {
    if (halted) {
        errno = EIO;
        return FAIL;
    }
    long number = __atomic_fetch_add(&counted, 1, __ATOMIC_SEQ_CST);
    if (number < (long)sizeof trace - 1) trace[number] = what[0];
    if (number == fail_at) {
        int is_write = strcmp(what, "write") == 0;
        snprintf(failed, sizeof failed, "%s", what);
        if (kind == ERROR) {
            errno = EIO;
            return FAIL;
        }
        if (kind == FULL) {
            is_full = 1;
            if (is_write) return HALF;
        } else if (kind == TORN && is_write) {
            return HALF;
        } else if (kind == KILL) {
            kill(getpid(), SIGKILL);
        } else {
            halted = 1;
            errno = EIO;
            return FAIL;
        }
    }
    if (is_full && takes_room) {
        errno = ENOSPC;
        return FAIL;
    }
    return PASS;
}

static int is_inside(int folder, const char *path) {
    char whole[2 * PATH_MAX], from[64];
    size_t n = strlen(root);
    if (!armed || path == NULL) return 0;
    if (path[0] == '/') return strncmp(path, root, n) == 0;
    if (folder == AT_FDCWD) {
        if (getcwd(whole, PATH_MAX) == NULL) return 0;
    } else {
        snprintf(from, sizeof from, "/proc/self/fd/%d", folder);
        ssize_t length = readlink(from, whole, PATH_MAX - 1);
        if (length < 0) return 0;
        whole[length] = 0;
    }
    return strncmp(whole, root, n) == 0;
}

static int is_of(int fd, int least) {
    return armed && fd >= 0 && fd < DESCRIPTORS && of_root[fd] >= least;
}

static int kept(int fd, int inside, int flags) {
    if (fd >= 0 && fd < DESCRIPTORS)
        of_root[fd] = !inside ? 0 : (flags & O_ACCMODE) == O_RDONLY ? READ_ONLY : WRITTEN;
    return fd;
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define MODE                             \
    mode_t mode = 0;                     \
    if (flags & (O_CREAT | __O_TMPFILE)) { \
        va_list more;                    \
        va_start(more, flags);           \
        mode = va_arg(more, mode_t);     \
        va_end(more);                    \
    }

/* A file that is there is opened for more as if nothing happened, unless everything has ended. */
static int opening(int inside, int flags, int is_there) {
    if (!inside || (flags & O_ACCMODE) == O_RDONLY) return PASS;
    if (is_there && !(flags & O_TRUNC)) {
        if (halted) errno = EIO;
        return halted ? FAIL : PASS;
    }
    return verdict("open", 1);
}

#define OPEN(name)                                                                          \
    int name(const char *path, int flags, ...) {                                            \
        REAL(name);                                                                         \
        MODE int inside = is_inside(AT_FDCWD, path);                                        \
        if (opening(inside, flags, access(path, F_OK) == 0) == FAIL) return -1;             \
        return kept(real(path, flags, mode), inside, flags);                                \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                        \
    int name(int folder, const char *path, int flags, ...) {                                \
        REAL(name);                                                                         \
        MODE int inside = is_inside(folder, path);                                          \
        if (opening(inside, flags, faccessat(folder, path, F_OK, 0) == 0) == FAIL) return -1; \
        return kept(real(folder, path, flags, mode), inside, flags);                        \
    }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name)                                                                         \
    FILE *name(const char *path, const char *how) {                                         \
        REAL(name);                                                                         \
        int flags = how[0] == 'r' ? (strchr(how, '+') ? O_RDWR : O_RDONLY) : O_WRONLY;      \
        int inside = is_inside(AT_FDCWD, path);                                             \
        flags |= how[0] == 'w' ? O_TRUNC : 0;                                               \
        if (opening(inside, flags, access(path, F_OK) == 0) == FAIL) return NULL;           \
        FILE *file = real(path, how);                                                       \
        if (file != NULL) kept(fileno(file), inside, flags);                                \
        return file;                                                                        \
    }
FOPEN(fopen)
FOPEN(fopen64)

static ssize_t half_written(ssize_t written) {
    if (kind == TORN) {
        halted = 1;
        errno = EIO;
        return -1;
    }
    if (written > 0) return written;
    errno = ENOSPC;
    return -1;
}

ssize_t write(int fd, const void *data, size_t n) {
    REAL(write);
    int what = is_of(fd, WRITTEN) ? verdict("write", 1) : PASS;
    if (what == FAIL) return -1;
    if (what == HALF) return half_written(n / 2 ? real(fd, data, n / 2) : 0);
    return real(fd, data, n);
}

#define PWRITE(name, type)                                                                  \
    ssize_t name(int fd, const void *data, size_t n, type offset) {                         \
        REAL(name);                                                                         \
        int what = is_of(fd, WRITTEN) ? verdict("write", 1) : PASS;                         \
        if (what == FAIL) return -1;                                                        \
        if (what == HALF) return half_written(n / 2 ? real(fd, data, n / 2, offset) : 0);   \
        return real(fd, data, n, offset);                                                   \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t writev(int fd, const struct iovec *parts, int n) {
    REAL(writev);
    if (is_of(fd, WRITTEN) && verdict("writev", 1) == FAIL) return -1;
    return real(fd, parts, n);
}

/* What is handed over is written at once, so that nothing is left to be written at the end. */
size_t fwrite(const void *data, size_t size, size_t n, FILE *file) {
    REAL(fwrite);
    if (!is_of(fileno(file), WRITTEN)) return real(data, size, n, file);
    int what = verdict("write", 1);
    if (what == FAIL) return 0;
    if (what == HALF) {
        size_t written = real(data, 1, size * n / 2, file);
        fflush(file);
        half_written(0);
        return written / (size ? size : 1) < n ? written / (size ? size : 1) : 0;
    }
    size_t written = real(data, size, n, file);
    return fflush(file) == 0 ? written : 0;
}

int fclose(FILE *file) {
    REAL(fclose);
    int fd = fileno(file);
    int what = is_of(fd, WRITTEN) ? verdict("close", 0) : PASS, error = errno;
    kept(fd, 0, 0);
    int result = real(file);
    if (what != FAIL) return result;
    errno = error;
    return EOF;
}

int close(int fd) {
    REAL(close);
    int what = is_of(fd, WRITTEN) ? verdict("close", 0) : PASS, error = errno;
    kept(fd, 0, 0);
    int result = real(fd);
    if (what != FAIL) return result;
    errno = error;
    return -1;
}

#define ON_FILE(name, said, least, takes_room, parameters, ...)                             \
    int name parameters {                                                                   \
        REAL(name);                                                                         \
        if (is_of(fd, least) && verdict(said, takes_room) == FAIL) return -1;               \
        return real(__VA_ARGS__);                                                           \
    }

/* Nothing here survives an end of the machine, so nobody waits for the disk. */
int fsync(int fd) {
    REAL(fsync);
    return !is_of(fd, READ_ONLY) ? real(fd) : verdict("fsync", 0) == FAIL ? -1 : 0;
}
int fdatasync(int fd) { return fsync(fd); }

ON_FILE(ftruncate, "ftruncate", WRITTEN, 0, (int fd, off_t size), fd, size)
ON_FILE(ftruncate64, "ftruncate", WRITTEN, 0, (int fd, off64_t size), fd, size)

/* These two return the error. */
#define ALLOCATE(name, type)                                                                \
    int name(int fd, type start, type size) {                                               \
        REAL(name);                                                                         \
        if (is_of(fd, WRITTEN) && verdict("allocate", 1) == FAIL) return errno;             \
        return real(fd, start, size);                                                       \
    }
ALLOCATE(posix_fallocate, off_t)
ALLOCATE(posix_fallocate64, off64_t)

#define SEND(name, type)                                                                    \
    ssize_t name(int out, int in, type *offset, size_t n) {                                 \
        ssize_t (*real)(int, int, type *, size_t) = dlsym(RTLD_NEXT, #name);                \
        if (is_of(out, WRITTEN) && verdict("sendfile", 1) == FAIL) return -1;               \
        return real(out, in, offset, n);                                                    \
    }
SEND(sendfile, off_t)
SEND(sendfile64, off64_t)

#define ON_NAMES(name, said, inside, takes_room, parameters, ...)                           \
    int name parameters {                                                                   \
        REAL(name);                                                                         \
        if ((inside) && verdict(said, takes_room) == FAIL) return -1;                       \
        return real(__VA_ARGS__);                                                           \
    }
#define HERE is_inside(AT_FDCWD, path)
#define THERE is_inside(folder, path)
ON_NAMES(rename, "rename", is_inside(AT_FDCWD, to), 0, (const char *path, const char *to), path, to)
ON_NAMES(renameat, "rename", is_inside(at, to), 0,
         (int folder, const char *path, int at, const char *to), folder, path, at, to)
ON_NAMES(link, "link", is_inside(AT_FDCWD, to), 1, (const char *path, const char *to), path, to)
ON_NAMES(linkat, "link", is_inside(at, to), 1,
         (int folder, const char *path, int at, const char *to, int flags), folder, path, at, to,
         flags)
ON_NAMES(symlink, "symlink", HERE, 1, (const char *to, const char *path), to, path)
ON_NAMES(unlink, "unlink", HERE, 0, (const char *path), path)
ON_NAMES(unlinkat, "unlink", THERE, 0, (int folder, const char *path, int flags), folder, path,
         flags)
ON_NAMES(remove, "unlink", HERE, 0, (const char *path), path)
ON_NAMES(rmdir, "rmdir", HERE, 0, (const char *path), path)
ON_NAMES(mkdir, "mkdir", HERE, 1, (const char *path, mode_t mode), path, mode)
ON_NAMES(mkdirat, "mkdir", THERE, 1, (int folder, const char *path, mode_t mode), folder, path,
         mode)
ON_NAMES(truncate, "truncate", HERE, 0, (const char *path, off_t size), path, size)
ON_NAMES(truncate64, "truncate", HERE, 0, (const char *path, off64_t size), path, size)

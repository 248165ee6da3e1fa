/* SPDX-License-Identifier: MIT */
/*
 * error.c - one sentence per thread, in 512 bytes of initial-exec TLS.
 *
 * It may run in somebody else's process, inside a malloc hook or between vfork and exec. So it
 * formats by itself: vsnprintf may allocate and reads the locale, strerror may allocate, and
 * either may be hooked.
 */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sparring/sparring.h>

#define TEXT_BYTES 512

struct last_error {
	int  number; /* positive errno; 0: none */
	bool has_text;
	char text[TEXT_BYTES];
};
static _Thread_local struct last_error last __attribute__((tls_model("initial-exec")));

struct sink_text {
	char  *out;
	size_t at, room; /* at may pass room: what does not fit is dropped */
};

static void put_char(struct sink_text *s, char c)
{
	if (s->at + 1 < s->room)
		s->out[s->at] = c;
	s->at++;
}

static void put_text(struct sink_text *s, const char *text, size_t n)
{
	for (size_t i = 0; i < n && text[i]; i++)
		put_char(s, text[i]);
}

struct spec { /* what stands between % and the letter */
	size_t width, precision;
	char   pad;
	int    longs; /* 0 int, 1 long or size_t, 2 long long or intmax_t */
	bool   left, alternate;
};

static void put_padded(struct sink_text *s, const char *text, size_t n, const struct spec *spec)
{
	const size_t pad = spec->width > n ? spec->width - n : 0;

	for (size_t i = 0; !spec->left && i < pad; i++)
		put_char(s, spec->pad);
	put_text(s, text, n);
	for (size_t i = 0; spec->left && i < pad; i++)
		put_char(s, ' ');
}

static void put_number(struct sink_text *s, uint64_t value, unsigned base, bool negative,
                       const struct spec *spec)
{
	char digits[28];
	size_t at = sizeof(digits);

	do {
		digits[--at] = "0123456789abcdef"[value % base];
		value /= base;
	} while (value);
	if (base == 16 && spec->alternate) {
		digits[--at] = 'x';
		digits[--at] = '0';
	}
	if (base == 8 && spec->alternate)
		digits[--at] = '0';
	if (negative)
		digits[--at] = '-';
	put_padded(s, digits + at, sizeof(digits) - at, spec);
}

static size_t text_bytes(const char *text, size_t most)
{
	size_t n = 0;

	while (n < most && text[n])
		n++;
	return n;
}

/* va_list travels inside a struct: passed alone it may or may not be an array. */
struct args {
	va_list list;
};

static size_t spec_count(const char **format, struct args *args)
{
	size_t n = 0;

	if (**format == '*') {
		const int given = va_arg(args->list, int);

		(*format)++;
		return given > 0 ? (size_t)given : 0;
	}
	for (; **format >= '0' && **format <= '9' && n < TEXT_BYTES; (*format)++)
		n = n * 10 + (size_t)(**format - '0');
	return n;
}

static const char *spec_read(const char *format, struct spec *spec, struct args *args)
{
	*spec = (struct spec){ .precision = SIZE_MAX, .pad = ' ' };
	for (;; format++) {
		if (*format == '0')
			spec->pad = '0';
		else if (*format == '#')
			spec->alternate = true;
		else if (*format == '-')
			spec->left = true;
		else if (*format != '+' && *format != ' ')
			break;
	}
	spec->width = spec_count(&format, args);
	if (*format == '.') {
		format++;
		spec->precision = spec_count(&format, args);
	}
	for (;; format++) {
		if (*format == 'l')
			spec->longs++;
		else if (*format == 'z' || *format == 't')
			spec->longs = 1;
		else if (*format == 'j')
			spec->longs = 2;
		else if (*format != 'h')
			return format;
	}
}

static int64_t arg_signed(const struct spec *spec, struct args *args)
{
	if (spec->longs == 0)
		return va_arg(args->list, int);
	if (spec->longs == 1)
		return va_arg(args->list, long);
	return va_arg(args->list, long long);
}

static uint64_t arg_unsigned(const struct spec *spec, struct args *args)
{
	if (spec->longs == 0)
		return va_arg(args->list, unsigned);
	if (spec->longs == 1)
		return va_arg(args->list, unsigned long);
	return va_arg(args->list, unsigned long long);
}

static void put_spec(struct sink_text *s, char letter, const struct spec *spec, struct args *args)
{
	struct spec plain = *spec;
	const char *text;
	int64_t number;
	char c;

	switch (letter) {
	case 's':
		text = va_arg(args->list, const char *);
		if (!text)
			text = "(null)";
		put_padded(s, text, text_bytes(text, spec->precision), spec);
		return;
	case 'd':
	case 'i':
		number = arg_signed(spec, args);
		put_number(s, number < 0 ? 0 - (uint64_t)number : (uint64_t)number, 10,
		           number < 0, spec);
		return;
	case 'u':
		put_number(s, arg_unsigned(spec, args), 10, false, spec);
		return;
	case 'x':
	case 'X':
		put_number(s, arg_unsigned(spec, args), 16, false, spec);
		return;
	case 'o':
		put_number(s, arg_unsigned(spec, args), 8, false, spec);
		return;
	case 'p':
		plain.alternate = true;
		put_number(s, (uintptr_t)va_arg(args->list, void *), 16, false, &plain);
		return;
	case 'c':
		c = (char)va_arg(args->list, int);
		put_padded(s, &c, 1, spec);
		return;
	default:
		put_char(s, letter);
	}
}

static void put_format(struct sink_text *s, const char *format, struct args *args)
{
	struct spec spec;

	while (*format) {
		if (*format != '%') {
			put_char(s, *format++);
			continue;
		}
		format = spec_read(format + 1, &spec, args);
		if (!*format)
			return;
		put_spec(s, *format++, &spec, args);
	}
}

/* The words of the C library for the numbers we can meet. */
static const struct {
	int         number;
	const char *words;
} errno_words[] = {
	{ EPERM, "Operation not permitted" },
	{ ENOENT, "No such file or directory" },
	{ ESRCH, "No such process" },
	{ EINTR, "Interrupted system call" },
	{ EIO, "Input/output error" },
	{ ENXIO, "No such device or address" },
	{ E2BIG, "Argument list too long" },
	{ ENOEXEC, "Exec format error" },
	{ EBADF, "Bad file descriptor" },
	{ ECHILD, "No child processes" },
	{ EAGAIN, "Resource temporarily unavailable" },
	{ ENOMEM, "Cannot allocate memory" },
	{ EACCES, "Permission denied" },
	{ EFAULT, "Bad address" },
	{ EBUSY, "Device or resource busy" },
	{ EEXIST, "File exists" },
	{ EXDEV, "Invalid cross-device link" },
	{ ENODEV, "No such device" },
	{ ENOTDIR, "Not a directory" },
	{ EISDIR, "Is a directory" },
	{ EINVAL, "Invalid argument" },
	{ ENFILE, "Too many open files in system" },
	{ EMFILE, "Too many open files" },
	{ ENOTTY, "Inappropriate ioctl for device" },
	{ ETXTBSY, "Text file busy" },
	{ EFBIG, "File too large" },
	{ ENOSPC, "No space left on device" },
	{ ESPIPE, "Illegal seek" },
	{ EROFS, "Read-only file system" },
	{ EMLINK, "Too many links" },
	{ EPIPE, "Broken pipe" },
	{ ERANGE, "Numerical result out of range" },
	{ EDEADLK, "Resource deadlock avoided" },
	{ ENAMETOOLONG, "File name too long" },
	{ ENOLCK, "No locks available" },
	{ ENOSYS, "Function not implemented" },
	{ ENOTEMPTY, "Directory not empty" },
	{ ELOOP, "Too many levels of symbolic links" },
	{ ENODATA, "No data available" },
	{ EPROTO, "Protocol error" },
	{ EBADMSG, "Bad message" },
	{ EOVERFLOW, "Value too large for defined data type" },
	{ EILSEQ, "Invalid or incomplete multibyte or wide character" },
	{ EMSGSIZE, "Message too long" },
	{ ENOTSUP, "Operation not supported" },
	{ EADDRINUSE, "Address already in use" },
	{ ECONNRESET, "Connection reset by peer" },
	{ ENOBUFS, "No buffer space available" },
	{ ENOTCONN, "Transport endpoint is not connected" },
	{ ETIMEDOUT, "Connection timed out" },
	{ ECONNREFUSED, "Connection refused" },
	{ EALREADY, "Operation already in progress" },
	{ EINPROGRESS, "Operation now in progress" },
	{ ESTALE, "Stale file handle" },
	{ EDQUOT, "Disk quota exceeded" },
	{ ECANCELED, "Operation canceled" },
	{ EOWNERDEAD, "Owner died" },
};

static void put_words(struct sink_text *s, int number)
{
	const struct spec plain = { .pad = ' ' };

	for (size_t i = 0; i < sizeof(errno_words) / sizeof(errno_words[0]); i++) {
		if (errno_words[i].number == number) {
			put_text(s, errno_words[i].words, SIZE_MAX);
			return;
		}
	}
	put_text(s, number ? "error " : "no error", SIZE_MAX);
	if (number)
		put_number(s, (uint64_t)number, 10, false, &plain);
}

/* Cut at a whole character: half of one would make the whole sentence bad UTF-8. */
static void text_end(struct sink_text *s)
{
	size_t end = s->at < s->room ? s->at : s->room - 1, start = end;

	if (s->at >= s->room) {
		while (start && ((unsigned char)s->out[start - 1] & 0xc0) == 0x80)
			start--;
		const unsigned char lead = start ? (unsigned char)s->out[start - 1] : 0;
		const size_t want = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;

		if (lead >= 0xc0 && end - (start - 1) < want)
			end = start - 1;
	}
	s->out[end] = '\0';
}

static void fail_text(int err, const char *format, struct args *args, bool system_words)
{
	char text[TEXT_BYTES]; /* an argument may be the last sentence itself */
	struct sink_text s = { text, 0, sizeof(text) };

	last.number = err < 0 ? -err : err;
	last.has_text = format != NULL;
	if (!format)
		return;
	put_format(&s, format, args);
	if (system_words) {
		put_text(&s, ": ", 2);
		put_words(&s, last.number);
	}
	text_end(&s);
	for (size_t i = 0; i < sizeof(text); i++) {
		last.text[i] = text[i];
		if (!text[i])
			break;
	}
}

int spr_fail(int err, const char *format, ...)
{
	struct args args;

	va_start(args.list, format);
	fail_text(err, format, &args, false);
	va_end(args.list);
	return err;
}

int spr_fail_sys(int err, const char *format, ...)
{
	struct args args;

	va_start(args.list, format);
	fail_text(err, format, &args, true);
	va_end(args.list);
	return err;
}

void spr_fail_clear(void)
{
	last.has_text = false;
	last.number = 0;
}

const char *spr_error_text(void)
{
	struct sink_text s = { last.text, 0, sizeof(last.text) };

	if (!last.has_text) {
		put_words(&s, last.number);
		text_end(&s);
	}
	return last.text;
}

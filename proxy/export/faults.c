/*
 * The list of what is wrong. A path in it may be anything that a file system takes for one.
 */
#include <stdarg.h>

#include "logging/limits.h"
#include "proxy/export/faults.h"

#define LINE_MAX_BYTES 4096

void export_faults_init(struct export_faults *f)
{
	*f = (struct export_faults){0};
	strbuf_init(&f->lines, (size_t)LIMIT_EXPORT_FAULTS * LINE_MAX_BYTES);
}

void export_faults_clear(struct export_faults *f)
{
	strbuf_clear(&f->lines);
	f->n = 0;
}

void export_fault(struct export_faults *f, const char *path, const char *fmt, ...)
{
	va_list ap;

	if (f->n++ >= LIMIT_EXPORT_FAULTS)
		return;
	strbuf_add_printable(&f->lines, str_from_c(path));
	strbuf_adds(&f->lines, ": ");
	va_start(ap, fmt);
	strbuf_vaddf(&f->lines, fmt, ap);
	va_end(ap);
	strbuf_addc(&f->lines, '\n');
}

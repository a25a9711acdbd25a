/*
 * What a name may not hold. The classes of characters and the folding are those of Unicode, from
 * libunistring.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <unicase.h>
#include <unictype.h>
#include <uninorm.h>
#include <unistr.h>

#include "logging/attrs.h"
#include "logging/limits.h"
#include "proxy/export/name.h"

/* Devices under any extension, for some systems (CON, con.txt). */
static bool is_device(const char *name)
{
	static const char *const known[] = {"CON",    "PRN",	"AUX",	  "NUL",
					    "CLOCK$", "CONIN$", "CONOUT$"};
	size_t n = strcspn(name, ". ");

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (strlen(known[i]) == n && strncasecmp(name, known[i], n) == 0)
			return true;
	return n == 4 && (strncasecmp(name, "COM", 3) == 0 || strncasecmp(name, "LPT", 3) == 0) &&
	       name[3] >= '0' && name[3] <= '9';
}

static int check_character(ucs4_t c, struct err *e)
{
	const uint32_t refused = UC_CATEGORY_MASK_C | UC_CATEGORY_MASK_Zl | UC_CATEGORY_MASK_Zp;

	if (uc_is_general_category_withtable(c, refused))
		return err_set(e, "its name holds U+%04X, which cannot be seen", (unsigned)c);
	if (c != ' ' && uc_is_general_category_withtable(c, UC_CATEGORY_MASK_Zs))
		return err_set(e, "its name holds U+%04X, which looks like a space", (unsigned)c);
	if (c < 128 && strchr("\\:*?\"<>|", (int)c))
		return err_set(e, "its name holds %c, which means something else elsewhere",
			       (int)c);
	return 0;
}

int name_check(const char *name, struct err *e)
{
	size_t n = strlen(name);
	const uint8_t *s = (const uint8_t *)name, *bad = u8_check(s, n);
	ucs4_t c;

	if (n == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return err_set(e, "its name leads elsewhere");
	if (n > LIMIT_EXPORT_NAME)
		return err_set(e, "its name is longer than %d bytes", LIMIT_EXPORT_NAME);
	if (bad)
		return err_set(e, "its name is not UTF-8");
	if (name[0] == '-')
		return err_set(e, "its name begins like an option");
	if (name[0] == ' ' || name[n - 1] == ' ' || name[n - 1] == '.')
		return err_set(e, "its name begins with a space, or ends in a space or a dot");
	if (is_device(name))
		return err_set(e, "its name is a device's on some systems");
	for (const uint8_t *at = s; (at = u8_next(&c, at));)
		if (check_character(c, e) != 0)
			return -1;
	return 0;
}

char *name_fold(const char *path)
{
	size_t n;
	uint8_t *folded =
		u8_casefold((const uint8_t *)path, strlen(path), NULL, UNINORM_NFKD, NULL, &n);
	char *s = folded ? realloc(folded, n + 1) : NULL;

	if (!s) {
		free(folded);
		return NULL;
	}
	s[n] = '\0';
	return s;
}

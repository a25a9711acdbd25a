/*
 * See misuse.h.
 */
#include "proxy/session/misuse.h"

#include "proxy/credentials/swap.h"

int misuse_check(const struct snapshot *s, const struct request *r, struct err *e)
{
	return s->placeholders ? swap_check_none(s->placeholders, r, e) : 0;
}

void misuse_note(const struct snapshot *s, const struct request *r, struct err *e)
{
	struct err found = ERR_INIT;

	if (misuse_check(s, r, &found) == 0)
		return;
	(void)err_wrap(&found, "%.200s; and", e->text);
	*e = found;
}

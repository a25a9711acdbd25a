/*
 * The segments of a path, each different text once, with a number; for path_forms.c alone. A text
 * that stands in a form is looked up by what a broad reader may leave of it too (`others`).
 */
#ifndef STILE_POLICY_PATH_TEXTS_H
#define STILE_POLICY_PATH_TEXTS_H

#include "policy/pattern_parts.h"

#define TEXT_NONE   UINT16_MAX
#define TEXT_OTHERS 10

struct text {
	/* borrowed */
	struct str s;
	/* plain */
	uint64_t forms; /* in which it stands, by itself or as another one's rest: their numbers
			   modulo 64 */
	uint64_t noted; /* the same, of those in which it stands by itself */
	uint32_t hash;
	/* What else a reader may take it for, with a blank for each plus: first what it is without
	 * what servers cut, then those without `.git`, then, for the last of a path alone, those
	 * without another format's ending. */
	uint16_t others[TEXT_OTHERS];
	uint8_t cut_n, others_n, last_n; /* up to where; each counts the ones before it */
	uint8_t dots;	    /* 1: a `.`, 2: a `..`, also with parameters or blanks behind */
	bool glued;	    /* `a..`, but not `a...` */
	bool hollow;	    /* of which some readers leave nothing */
	bool index;	    /* the page of its folder */
	bool index_trimmed; /* or that without dots and blanks at its end */
	bool raw;	    /* stands in the path as it is */
	bool read;	    /* all but the first and raw are known */
};

#define TEXTS_FEW 32 /* so many need no memory of their own */

struct texts {
	/* owned, or the few */
	struct text *v;
	uint16_t *places; /* number plus one; 0: free */
	/* owned */
	char **kept; /* what texts lie in */
	/* plain */
	uint16_t few_places[2 * TEXTS_FEW];
	struct text few[TEXTS_FEW];
	size_t n, cap, mask, kept_n, kept_cap;
	size_t steps; /* all that was compared: texts and positions */
};

/* Not to be moved. */
void texts_init(struct texts *t);
void texts_clear(struct texts *t);
/* Takes heap memory over, which texts lie in; NULL is memory that is out. The same, or NULL: then
 * it is freed. */
char *texts_keep(struct texts *t, char *memory);
/* Its number, made if it is new; TEXT_NONE when memory is out or there are LIMIT_PATH_TEXTS. */
uint16_t texts_add(struct texts *t, struct str s);
/* The same of a segment that a broad reader reads. */
uint16_t texts_add_read(struct texts *t, struct str s);
/* Its number, or TEXT_NONE. */
uint16_t texts_find(struct texts *t, struct str s, uint32_t hash);

#endif

/*
 * See config_watch.h. Nothing is opened here: Landlock leaves the proxy stat(2), and the keeper
 * reads the file.
 */
#include "proxy/cli/config_watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "logging/limits.h"

static uint64_t mix(uint64_t h, uint64_t v)
{
	/* FNV-1a, eight bytes at a time: who may write these files needs no collision. */
	return (h ^ v) * 0x100000001b3ULL;
}

/* Links are followed, so that one which is swapped makes another file of the same name. What cannot
 * be seen is a state as well, and so is its reason. */
static uint64_t sign_of(uint64_t h, const char *path)
{
	struct stat st;

	if (stat(path, &st) != 0)
		return mix(h, (uint64_t)errno);
	/* A pipe is read once, and says nothing by its times. */
	if (!S_ISREG(st.st_mode))
		return mix(h, 1);
	h = mix(mix(h, (uint64_t)st.st_dev), (uint64_t)st.st_ino);
	h = mix(mix(h, (uint64_t)st.st_size), (uint64_t)st.st_mtim.tv_sec);
	h = mix(mix(h, (uint64_t)st.st_mtim.tv_nsec), (uint64_t)st.st_ctim.tv_sec);
	return mix(h, (uint64_t)st.st_ctim.tv_nsec);
}

static uint64_t sign_file(const struct config *c)
{
	return sign_of(0xcbf29ce484222325ULL, c->file);
}

static uint64_t sign_trust(const struct config *c)
{
	uint64_t h = 0xcbf29ce484222325ULL;

	for (size_t i = 0; i < c->trust_n; i++)
		if (strcmp(c->trust[i], "system") != 0)
			h = sign_of(h, c->trust[i]);
	return h;
}

static bool same(const struct config_signs *a, const struct config_signs *b)
{
	return a->file == b->file && a->trust == b->trust;
}

/* What was read and what is there now. A pipe is not to be read twice. */
static bool is_what_was_read(const struct config *c)
{
	struct faults f;
	struct stat st;
	char *text = NULL;
	size_t n = 0;
	bool is;

	if (stat(c->file, &st) != 0 || !S_ISREG(st.st_mode))
		return true;
	faults_init(&f, c->file);
	is = config_read_file(c->file, &text, &n, &f) == 0 && n == c->text_n &&
	     memcmp(text, c->text, n) == 0;
	free(text);
	faults_clear(&f);
	return is;
}

void config_watch_start(struct config_watch *w, struct config *c)
{
	*w = (struct config_watch){.config = config_ref(c)};
	w->taken = (struct config_signs){.file = sign_file(c), .trust = sign_trust(c)};
	if (c->reload == CONFIG_RELOAD_WATCH && !is_what_was_read(c))
		w->taken.file = 0;
	w->last = w->taken;
}

void config_watch_note_file(struct config_watch *w)
{
	w->taken.file = sign_file(w->config);
	w->taken.trust = sign_trust(w->config);
}

void config_watch_note(struct config_watch *w, struct config *c)
{
	config_ref(c);
	config_unref(w->config);
	w->config = c;
	w->taken.trust = sign_trust(c);
}

bool config_watch_due(struct config_watch *w, const struct config *in_force, int64_t now_ms)
{
	struct config_signs now;
	bool is_still;

	if (in_force->reload != CONFIG_RELOAD_WATCH || now_ms < w->next_ms)
		return false;
	w->next_ms = now_ms + LIMIT_MS_CONFIG_LOOK;
	now = (struct config_signs){.file = sign_file(w->config), .trust = sign_trust(w->config)};
	is_still = same(&now, &w->last);
	w->last = now;
	return is_still && !same(&now, &w->taken);
}

void config_watch_clear(struct config_watch *w)
{
	config_unref(w->config);
	w->config = NULL;
}

/*
 * Decides what is hidden from the command: the paths that the configuration names as secret. It
 * mounts nothing (files.c does, inside) and runs outside, where the paths still mean what the
 * configuration meant.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "logging/log.h"
#include "logging/strbuf.h"
#include "proxy/sandbox/plan.h"

#define DEFAULT_CA_DIR "/var/lib/stile/ca"
#define PATH_BYTES     4096

int plan_add(struct files_plan *p, const char *path, enum files_how how)
{
	char *copy;

	for (size_t i = 0; i < p->n; i++) {
		if (strcmp(p->v[i].path, path) == 0) {
			if (how > p->v[i].how)
				p->v[i].how = how;
			return 0;
		}
	}
	if (p->n == p->cap) {
		size_t cap = p->cap ? 2 * p->cap : 16;
		struct files_item *grown = realloc(p->v, cap * sizeof(*grown));

		if (!grown)
			return -1;
		p->v = grown;
		p->cap = cap;
	}
	copy = strdup(path);
	if (!copy)
		return -1;
	p->v[p->n++] = (struct files_item){copy, how};
	return 0;
}

/* Where `path` really lies. A path that leads nowhere has nothing to hide. */
static int add_real(struct files_plan *p, const char *path, enum files_how how)
{
	char *real = realpath(path, NULL);
	int rc = real ? plan_add(p, real, how) : 0;

	free(real);
	return rc;
}

bool plan_is_at_or_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	if (n == 1)
		return true; /* the root */
	return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static bool is_planned(const struct files_plan *p, const char *dir, const char *entry)
{
	char path[PATH_BYTES];
	struct strbuf b;

	strbuf_init_fixed(&b, path, sizeof(path));
	strbuf_addf(&b, "%s/%s", dir, entry);
	for (size_t i = 0; i < p->n; i++) {
		if (strcmp(p->v[i].path, path) == 0)
			return true;
	}
	return false;
}

/* Does the folder hold nothing but what is planned anyway? Names with a dot in front do not count:
 * programs that swap a set of secrets at once keep the set under such a name. */
static bool is_dedicated(const struct files_plan *p, const char *dir)
{
	const char *home = getenv("HOME");
	struct dirent *entry;
	DIR *d;
	bool rc = true;

	if (plan_is_at_or_below(p->workspace, dir) || (home && plan_is_at_or_below(home, dir)) ||
	    plan_is_at_or_below("/tmp", dir) || plan_is_at_or_below("/usr/bin", dir))
		return false;
	d = opendir(dir);
	if (!d)
		return false;
	while (rc && (entry = readdir(d)) != NULL)
		rc = entry->d_name[0] == '.' || is_planned(p, dir, entry->d_name);
	closedir(d);
	return rc;
}

/* The folder that the last name of path stands in, links before it resolved: a file that is
 * replaced under its name appears there, beside whatever was mounted on the old one. */
static char *folder_of(const char *path)
{
	char *copy = strdup(path);
	char *slash = copy ? strrchr(copy, '/') : NULL;
	char *real;

	if (slash == copy && slash)
		slash[1] = '\0';
	else if (slash)
		*slash = '\0';
	real = copy ? realpath(slash ? copy : ".", NULL) : NULL;
	free(copy);
	return real;
}

static int add_secret(struct files_plan *p, const char *path)
{
	char *dir = folder_of(path);
	const char *last = strrchr(path, '/');
	char link[PATH_BYTES];
	struct strbuf b;
	int rc = add_real(p, path, FILES_HIDE);

	/* Under the name it was given too: that may be a link, of which only the end is covered. */
	strbuf_init_fixed(&b, link, sizeof(link));
	if (rc == 0 && dir) {
		strbuf_addf(&b, "%s/%s", dir, last ? last + 1 : path);
		rc = b.overflowed ? -1 : plan_add(p, link, FILES_HIDE);
	}
	free(dir);
	return rc;
}

static int add_dedicated_folders(struct files_plan *p, const struct config *c)
{
	const char *path;
	int rc = 0;

	for (size_t i = 0; c && i < c->credentials_n; i++)
		for (size_t n = 0;
		     rc == 0 && (path = config_credential_file(&c->credentials[i], n)); n++) {
			char *dir = folder_of(path);

			if (dir && is_dedicated(p, dir))
				rc = plan_add(p, dir, FILES_HIDE);
			free(dir);
		}
	return rc;
}

/* The command may not read a secret, but stile does, by its path: a folder on the way to it that
 * was renamed would make room for another one, with a policy or a key of the command's choice. From
 * the top down, so that no folder is pinned after one within it. */
static int pin_folders_above(struct files_plan *p, const char *path)
{
	char *copy = strdup(path);
	int rc = copy ? 0 : -1;

	for (char *s = copy ? strchr(copy + 1, '/') : NULL; s && rc == 0; s = strchr(s + 1, '/')) {
		char *last;
		bool can_rename;

		*s = '\0';
		last = strrchr(copy, '/');
		*last = '\0';
		can_rename = access(last == copy ? "/" : copy, W_OK) == 0;
		*last = '/';
		if (can_rename)
			rc = plan_add(p, copy, FILES_PIN);
		*s = '/';
	}
	free(copy);
	return rc;
}

static int pin_all(struct files_plan *p)
{
	size_t n = p->n;

	for (size_t i = 0; i < n; i++) {
		if (pin_folders_above(p, p->v[i].path) != 0)
			return -1;
	}
	return 0;
}

/* Sockets that the user's session names: an agent that signs with the user's keys, a daemon that
 * starts containers. Those below /run are gone with it. */
static int add_session_sockets(struct files_plan *p)
{
	static const char *const variables[] = {"SSH_AUTH_SOCK", "DOCKER_HOST", "CONTAINER_HOST",
						"DBUS_SESSION_BUS_ADDRESS"};

	for (size_t i = 0; i < ARRAY_LEN(variables); i++) {
		const char *value = getenv(variables[i]);
		const char *slash = value ? strchr(value, '/') : NULL;
		char path[PATH_BYTES];
		struct strbuf b;
		struct stat st;

		if (!slash)
			continue;
		/* "/path", "unix:///path", "unix:path=/path,guid=..." */
		while (slash[1] == '/')
			slash++;
		strbuf_init_fixed(&b, path, sizeof(path));
		strbuf_add(&b, str_head(str_from_c(slash), strcspn(slash, ",")));
		if (stat(path, &st) == 0 && S_ISSOCK(st.st_mode) &&
		    add_real(p, path, FILES_HIDE) != 0)
			return -1;
	}
	return 0;
}

static int add_texts(struct files_plan *p, const struct files_options *o)
{
	const struct config *c = o->config;
	size_t which;

	if (!c || !o->placeholders || c->credentials_n == 0)
		return 0;
	p->texts = calloc(c->credentials_n, sizeof(*p->texts));
	if (!p->texts)
		return -1;
	for (size_t i = 0; i < c->credentials_n; i++) {
		const struct config_credential *k = &c->credentials[i];

		if (k->placeholder && k->placeholder->file &&
		    placeholders_find(o->placeholders, STR_NONE, k->name, &which))
			p->texts[p->texts_n++] = (struct files_text){
				k->name,
				needles_text(placeholders_needles(o->placeholders), which)};
	}
	return 0;
}

/* What shells, editors and desktops run lies there too, and no list of that is whole. */
static void warn_of_home(const struct files_plan *p)
{
	log_warn("the workspace %s is your home, or above it: what the command writes there "
		 "(.bashrc, "
		 ".profile, ...) may be run outside later (work in a folder below, or say "
		 "--workspace DIR)",
		 p->workspace);
}

int files_plan_make(const struct files_options *o, struct files_plan *ret, struct err *e)
{
	const struct config *c = o->config;
	const char *path;
	int rc;

	*ret = (struct files_plan){.workspace =
					   realpath(o->workspace ? o->workspace : "/tmp", NULL),
				   .no_workspace = !o->workspace};
	if (!ret->workspace)
		return err_sys(e, errno, "%s: cannot be the workspace", o->workspace);
	if (o->workspace && plan_is_at_or_below("/usr/bin", ret->workspace))
		return err_set(e,
			       "%s: cannot be the workspace, as all programs are in it (say "
			       "--workspace DIR, or none)",
			       ret->workspace);
	rc = add_real(ret, c && c->ca_dir ? c->ca_dir : DEFAULT_CA_DIR, FILES_HIDE);
	for (size_t i = 0; c && i < c->credentials_n; i++)
		for (size_t n = 0;
		     rc == 0 && (path = config_credential_file(&c->credentials[i], n)); n++)
			rc = add_secret(ret, path);
	/* Who can ask there can make tokens, and stile runs as the user that the command has. */
	if (rc == 0 && c && c->admin_path)
		rc = add_secret(ret, c->admin_path);
	for (size_t i = 0; c && i < c->listeners_n && rc == 0; i++) {
		if (c->listeners[i].unix_path)
			rc = add_secret(ret, c->listeners[i].unix_path);
	}
	if (rc == 0 && o->log_dir)
		rc = add_real(ret, o->log_dir, FILES_HIDE);
	if (rc == 0 && o->log_file)
		rc = add_secret(ret, o->log_file);
	if (rc == 0 && o->config_file)
		rc = add_real(ret, o->config_file, FILES_FREEZE);
	if (rc == 0)
		rc = add_texts(ret, o);
	if (rc == 0)
		rc = add_dedicated_folders(ret, c);
	if (rc == 0)
		rc = pin_all(ret);
	if (rc == 0)
		rc = add_session_sockets(ret);
	for (size_t i = 0; i < o->hide_n && rc == 0; i++)
		rc = add_real(ret, o->hide[i], FILES_HIDE);
	if (rc == 0)
		rc = plan_homes(ret, o);
	if (rc == 0 && ret->home_is_open)
		warn_of_home(ret);
	return rc == 0 ? 0 : err_set(e, "out of memory");
}

void files_plan_clear(struct files_plan *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->v[i].path);
	for (size_t i = 0; i < p->homes_n; i++)
		free(p->homes[i]);
	for (size_t i = 0; i < p->shown_n; i++)
		free(p->shown[i]);
	free(p->shown);
	free(p->v);
	free(p->texts);
	free(p->workspace);
	*p = (struct files_plan){0};
}

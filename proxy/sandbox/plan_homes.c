/*
 * The user's home: an empty one in memory lies over it, in which the folders of well-known tools,
 * and those of PATH, are put back read-only. Where the workspace is the home, or above it, the
 * usual places of secrets in it are hidden one by one.
 */
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "logging/strbuf.h"
#include "proxy/sandbox/plan.h"

#define PATH_BYTES 4096

/* Programs and what they need to run; no settings, as there are tokens among them. */
static const char *const tools[] = {
	".asdf",
	".bun",
	".cargo/bin",
	".deno",
	".dotnet",
	".fnm",
	".ghcup",
	".juliaup",
	".linuxbrew",
	".local/bin",
	".local/lib",
	".local/pipx",
	".local/share/fnm",
	".local/share/mise",
	".local/share/pipx",
	".local/share/pnpm",
	".local/share/uv",
	".nix-profile",
	".nodenv",
	".npm-global",
	".nvm",
	".opam",
	".pyenv",
	".rbenv",
	".rustup",
	".rvm",
	".sdkman",
	".volta",
	"go/bin",
	"miniconda3",
	"anaconda3",
};

/* Below a home. */
static const char *const secrets[] = {
	".ssh",
	".gnupg",
	".aws",
	".azure",
	".config/gcloud",
	".config/gh",
	".config/hub",
	".config/git",
	".docker",
	".kube",
	".netrc",
	".git-credentials",
	".npmrc",
	".yarnrc.yml",
	".pypirc",
	".config/pip",
	".cargo/credentials",
	".cargo/credentials.toml",
	".gem/credentials",
	".m2/settings.xml",
	".gradle/gradle.properties",
	".terraform.d",
	".vault-token",
	".password-store",
	".local/share/keyrings",
	".pki",
	".mozilla",
	".thunderbird",
	".config/google-chrome",
	".config/chromium",
	".config/op",
	".pgpass",
	".my.cnf",
	".env",
	".bash_history",
	".zsh_history",
	".python_history",
	".psql_history",
	".node_repl_history",
	".local/state/stile",
};

/* Anywhere; most are for root alone, who may run this as well. */
static const char *const system_secrets[] = {
	"/etc/shadow",
	"/etc/shadow-",
	"/etc/gshadow",
	"/etc/gshadow-",
	"/etc/sudoers",
	"/etc/sudoers.d",
	"/etc/ssh/ssh_host_rsa_key",
	"/etc/ssh/ssh_host_ecdsa_key",
	"/etc/ssh/ssh_host_ed25519_key",
	"/etc/ssl/private",
	"/etc/kubernetes",
	"/etc/rancher",
	"/etc/krb5.keytab",
	"/etc/NetworkManager/system-connections",
	"/etc/wireguard",
	"/var/lib/docker",
	"/var/lib/containers",
	"/var/lib/kubelet",
	"/var/spool/cron",
	"/var/backups",
	"/var/log",
};

static bool is_home(const struct files_plan *p, const char *path)
{
	for (size_t i = 0; i < p->homes_n; i++)
		if (strcmp(p->homes[i], path) == 0)
			return true;
	return false;
}

/* Would anything be seen of it without this? */
static bool is_covered(const struct files_plan *p, const char *path)
{
	for (size_t i = 0; i < p->homes_n; i++)
		if (plan_is_at_or_below(path, p->homes[i]))
			return true;
	return plan_is_at_or_below(path, "/tmp") || plan_is_at_or_below(path, "/var/tmp") ||
	       plan_is_at_or_below(path, "/dev/shm");
}

/* path is taken over; NULL is nothing. */
static int show(struct files_plan *p, char *path)
{
	char **grown;

	if (!path)
		return 0;
	for (size_t i = 0; i < p->shown_n; i++)
		if (plan_is_at_or_below(path, p->shown[i])) {
			free(path);
			return 0;
		}
	if (!is_covered(p, path) || is_home(p, path) || strcmp(path, "/tmp") == 0 ||
	    strcmp(path, "/var/tmp") == 0 || plan_is_at_or_below(p->workspace, path)) {
		free(path);
		return 0;
	}
	grown = realloc(p->shown, (p->shown_n + 1) * sizeof(*grown));
	if (!grown) {
		free(path);
		return -1;
	}
	p->shown = grown;
	p->shown[p->shown_n++] = path;
	return 0;
}

static int show_below(struct files_plan *p, const char *home, const char *name)
{
	char path[PATH_BYTES];
	struct strbuf b;

	strbuf_init_fixed(&b, path, sizeof(path));
	strbuf_addf(&b, "%s/%s", home, name);
	return b.overflowed ? 0 : show(p, realpath(path, NULL));
}

/* What the user wants to be seen is not hidden for its name alone. */
static bool is_wanted(const struct files_options *o, const char *real)
{
	bool wanted = false;

	for (size_t i = 0; i < o->show_n && !wanted; i++) {
		char *shown = realpath(o->show[i], NULL);

		wanted = shown && strcmp(shown, real) == 0;
		free(shown);
	}
	return wanted;
}

static int hide_below(struct files_plan *p, const struct files_options *o, const char *home,
		      const char *name)
{
	char path[PATH_BYTES], *real;
	struct strbuf b;
	int rc;

	strbuf_init_fixed(&b, path, sizeof(path));
	strbuf_addf(&b, "%s/%s", home, name);
	real = b.overflowed ? NULL : realpath(path, NULL);
	rc = real && !is_wanted(o, real) ? plan_add(p, real, FILES_HIDE) : 0;
	free(real);
	return rc;
}

/* A home that is the system's own, as those of daemons are, cannot go. */
static bool is_system(const char *home)
{
	return plan_is_at_or_below("/usr/bin", home) || plan_is_at_or_below("/etc/ssl", home) ||
	       plan_is_at_or_below(home, "/usr") || plan_is_at_or_below(home, "/bin") ||
	       plan_is_at_or_below(home, "/sbin") || plan_is_at_or_below(home, "/dev") ||
	       plan_is_at_or_below(home, "/proc") || plan_is_at_or_below(home, "/run");
}

static int add_home(struct files_plan *p, const struct files_options *o, const char *home)
{
	char *real = home && home[0] == '/' ? realpath(home, NULL) : NULL;
	int rc = 0;

	if (!real || is_system(real) || is_home(p, real)) {
		free(real);
		return 0;
	}
	if (!p->no_workspace && plan_is_at_or_below(real, p->workspace)) {
		for (size_t i = 0; i < ARRAY_LEN(secrets) && rc == 0; i++)
			rc = hide_below(p, o, real, secrets[i]);
		p->home_is_open = true;
		free(real);
		return rc;
	}
	p->homes[p->homes_n++] = real;
	return 0;
}

static int show_path(struct files_plan *p)
{
	const char *value = getenv("PATH");
	char *copy = value ? strdup(value) : NULL, *rest = copy, *one;
	int rc = value && !copy ? -1 : 0;

	while (rc == 0 && rest && (one = strsep(&rest, ":")))
		if (one[0] == '/')
			rc = show(p, realpath(one, NULL));
	free(copy);
	return rc;
}

int plan_homes(struct files_plan *p, const struct files_options *o)
{
	const struct passwd *user = getpwuid(getuid());
	int rc = add_home(p, o, getenv("HOME"));

	if (rc == 0 && user)
		rc = add_home(p, o, user->pw_dir);
	for (size_t h = 0; h < p->homes_n; h++)
		for (size_t i = 0; i < ARRAY_LEN(tools) && rc == 0; i++)
			rc = show_below(p, p->homes[h], tools[i]);
	if (rc == 0)
		rc = show_path(p);
	if (rc == 0 && o->command && strchr(o->command, '/'))
		rc = show(p, realpath(o->command, NULL));
	for (size_t i = 0; i < o->show_n && rc == 0; i++)
		rc = show(p, realpath(o->show[i], NULL));
	for (size_t i = 0; i < ARRAY_LEN(system_secrets) && rc == 0; i++)
		if (!plan_is_at_or_below(p->workspace, system_secrets[i]) &&
		    !is_wanted(o, system_secrets[i]))
			rc = plan_add(p, system_secrets[i], FILES_HIDE);
	return rc;
}

/*
 * The file that a client's trust variables point to. It holds the system's roots as well as the CA,
 * because most of those variables replace the client's own list, and an origin behind `tls:
 * passthrough` shows its real certificate.
 */
#include "certs/roots.h"
#include "certs/trust.h"

int bundle_add(struct str extra_pem, struct strbuf *out, struct err *e)
{
	if (roots_add_system(out, e) != 0)
		return -1;
	strbuf_add(out, extra_pem);
	if (extra_pem.n > 0 && extra_pem.p[extra_pem.n - 1] != '\n')
		strbuf_addc(out, '\n');
	return out->overflowed ? err_set(e, "no room for the bundle of root certificates") : 0;
}

#!/bin/sh
# Writes OUT/usr/share/stile/sbom.spdx.json: what the image holds, as SPDX 2.3, from dpkg's data of the
# packages that collect.sh noted. Called by the Dockerfile behind it.
#
#   sbom.sh OUT VERSION REVISION CREATED
set -eu
out=$1 version=$2 revision=$3 created=$4
list=$out/usr/share/stile/packages
sbom=$out/usr/share/stile/sbom.spdx.json

json() {
	printf '%s' "$1" | sed 's/\\/\\\\/g; s/"/\\"/g' | tr -d '\000-\037'
}
spdx_id() {
	printf 'SPDXRef-%s' "$(printf '%s' "$1" | tr -c 'A-Za-z0-9.-' -)"
}
# purl: `+` and `:` of a version are escaped there.
escaped() {
	printf '%s' "$1" | sed 's/%/%25/g; s/+/%2B/g; s/:/%3A/g; s/~/%7E/g'
}

sum=$(sha256sum "$out/usr/bin/stile" | cut -d' ' -f1)
{
	cat <<-END
	{
	  "spdxVersion": "SPDX-2.3",
	  "dataLicense": "CC0-1.0",
	  "SPDXID": "SPDXRef-DOCUMENT",
	  "name": "stile-$(json "$version")",
	  "documentNamespace": "urn:stile:sbom:$(json "$version"):$sum",
	  "creationInfo": {"created": "$(json "$created")", "creators": ["Tool: stile-sbom.sh"]},
	  "documentDescribes": ["SPDXRef-stile"],
	  "packages": [
	    {"SPDXID": "SPDXRef-stile", "name": "stile", "versionInfo": "$(json "$version")",
	     "sourceInfo": "revision $(json "$revision")", "supplier": "NOASSERTION",
	     "downloadLocation": "NOASSERTION", "filesAnalyzed": false, "primaryPackagePurpose": "APPLICATION",
	     "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0", "copyrightText": "NOASSERTION",
	     "checksums": [{"algorithm": "SHA256", "checksumValue": "$sum"}]}
	END
	while read -r package; do
		name=${package%%:*}
		row=$(dpkg-query -W -f '${Version}|${Architecture}|${source:Package}|${source:Version}|${Maintainer}\n' \
			"$package")
		IFS='|' read -r v arch src src_v maintainer <<-END
		$row
		END
		distro=debian-$(. /etc/os-release; echo "${VERSION_ID:-0}")
		cat <<-END
		    ,{"SPDXID": "$(spdx_id "$name")", "name": "$(json "$name")", "versionInfo": "$(json "$v")",
		     "sourceInfo": "built from the Debian source $(json "$src") $(json "$src_v")",
		     "supplier": "Organization: $(json "$maintainer" | sed 's/ *<\([^>]*\)>/ (\1)/')",
		     "downloadLocation": "NOASSERTION", "filesAnalyzed": false, "primaryPackagePurpose": "LIBRARY",
		     "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION",
		     "licenseComments": "/usr/share/doc/$(json "$name")/copyright", "copyrightText": "NOASSERTION",
		     "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
		       "referenceLocator": "pkg:deb/debian/$(escaped "$name")@$(escaped "$v")?arch=$arch&distro=$distro"}]}
		END
	done <"$list"
	cat <<-END
	  ],
	  "relationships": [
	    {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
	     "relatedSpdxElement": "SPDXRef-stile"}
	END
	while read -r package; do
		cat <<-END
		    ,{"spdxElementId": "SPDXRef-stile", "relationshipType": "DEPENDS_ON",
		     "relatedSpdxElement": "$(spdx_id "${package%%:*}")"}
		END
	done <"$list"
	printf '  ]\n}\n'
} >"$sbom"
rm "$list"

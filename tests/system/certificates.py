"""Certificates for tests, made with the `openssl` command."""

import subprocess

CONFIGURATION = """
[ca]
default_ca = this
[this]
dir = {folder}
database = {folder}/index
new_certs_dir = {folder}
serial = {folder}/serial
certificate = {folder}/ca.pem
private_key = {folder}/ca.key
default_md = sha256
policy = any
unique_subject = no
copy_extensions = copy
[any]
commonName = supplied
[req]
distinguished_name = name
[name]
"""
NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


class Identity:
    """The files of a certificate and its key."""

    def __init__(self, certificate, key):
        self.certificate = certificate
        self.key = key

    def read(self):
        return self.certificate.read_bytes(), self.key.read_bytes()

    def replace_by(self, other):
        """Replaces the files like a renewal: each file is complete at every moment."""
        for mine, others in ((self.key, other.key), (self.certificate, other.certificate)):
            new = mine.with_suffix(".new")
            new.write_bytes(others.read_bytes())
            new.chmod(0o600)
            new.rename(mine)


class Authority:

    def __init__(self, folder, name="authority"):
        folder.mkdir()
        self._folder = folder
        self._configuration = folder / "openssl.cnf"
        self._configuration.write_text(CONFIGURATION.format(folder=folder))
        (folder / "index").touch()
        (folder / "serial").write_text("01\n")
        self.certificate = folder / "ca.pem"
        self._openssl("req", "-x509", *NEW_KEY, "-keyout", folder / "ca.key", "-out", self.certificate, "-days", "30",
                      "-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE")

    def issue(self, name, *, alternatives="DNS:localhost,IP:127.0.0.1", start=None, end=None):
        """`start` and `end` have the form YYYYMMDDHHMMSSZ. By default the certificate is valid for a month from now on."""
        identity = Identity(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request = self._folder / f"{name}.csr"
        self._openssl("req", *NEW_KEY, "-keyout", identity.key, "-out", request, "-subj", f"/CN={name}",
                      "-addext", f"subjectAltName={alternatives}")
        dates = ["-days", "30"] if start is None else ["-startdate", start, "-enddate", end]
        self._openssl("ca", "-batch", "-notext", "-in", request, "-out", identity.certificate, *dates)
        return identity

    def issue_expired(self, name):
        return self.issue(name, start="20200101000000Z", end="20200201000000Z")

    def _openssl(self, command, *arguments):
        subprocess.run(["openssl", command, "-config", str(self._configuration), *map(str, arguments)], check=True, capture_output=True)

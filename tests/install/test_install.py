"""`cmake --install`, component by component: client and server each in a prefix of its own, as on
two machines, and used from there alone.
"""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import fargpu_testing as testing
import lint_links

CMAKE = "cmake"
COMPONENTS = ("client", "server", "sim", "docs")


def install(prefix, *components, destdir=None):
    """These components; without any, all that there are."""
    environment = dict(os.environ, **({"DESTDIR": str(destdir)} if destdir else {}))
    for component in components or (None,):
        subprocess.run(
            [CMAKE, "--install", testing.BUILD.folder, "--prefix", prefix]
            + (["--component", component] if component else []),
            env=environment,
            stdout=subprocess.DEVNULL,
            check=True,
        )


def files_of(prefix):
    return {str(p.relative_to(prefix)) for p in pathlib.Path(prefix).rglob("*") if not p.is_dir()}


def binaries_of(prefix):
    """Names of the installed programs and libraries, but for those of other projects."""
    found = set()
    for file in files_of(prefix):
        path = pathlib.Path(prefix, file)
        if not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF":
            found.add(path.name)
    return {name for name in found if not name.startswith(("libcapnp", "libkj"))}


def linked_for(target):
    """Names of the files in bin and lib that a build of this target links."""
    done = subprocess.run(
        ["ninja", "-C", testing.BUILD.folder, "-t", "commands", target],
        check=True,
        stdout=subprocess.PIPE,
    )
    outputs = re.findall(r" -o ((?:bin|lib)/\S+)", done.stdout.decode())
    return {pathlib.Path(output).name for output in outputs}


def search_paths(file):
    """What an ELF file says itself of where its libraries are."""
    told = subprocess.run(
        ["readelf", "-d", file], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ).stdout.decode()
    return [line.split("[")[1].rstrip("]") for line in told.splitlines() if "PATH)" in line]


class Install(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fargpu-install-")).resolve()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        build = testing.BUILD
        self.addCleanup(setattr, testing, "BUILD", build)
        self.program = build.folder / "tests" / "fault" / "fault_program"

    def installed(self, name, *components):
        """Installed, and moved to another place."""
        install(self.folder / "first", *components)
        (self.folder / "first").rename(self.folder / name)
        return self.folder / name

    def use(self, prefix):
        testing.BUILD = testing.Build(prefix)

    def check_program(self, done):
        self.assertEqual((done.returncode, done.stdout), (0, "ready\n"), done.stderr)

    def test_client_and_server_apart(self):
        client = self.installed("client", "client")
        server = self.installed("server", "server", "sim")
        self.use(server)
        with testing.Daemon(gpus=2) as daemon:
            self.use(client)
            self.check_program(daemon.run(self.program, flags=("--gpus", "2"), input=""))
            maps = daemon.run("cat", "/proc/self/environ").stdout
            self.assertIn(str(client), maps)
            doctor = testing.run([client / "bin" / "fargpu", "doctor", "--server", daemon.server])
            self.assertEqual(doctor.returncode, 0, doctor.stdout)
            self.assertRegex(doctor.stdout, rf"{client}/.*/libcuda\.so\.1")
        for prefix in (client, server):
            for file in files_of(prefix):
                texts = (".service", ".rules", ".conf")
                if file.startswith(("bin/", "lib")) and not file.endswith(texts):
                    self.assertIn(search_paths(prefix / file), ([], ["$ORIGIN"]), file)

    def test_a_run_on_a_private_daemon(self):
        prefix = self.installed("all", "client", "server", "sim")
        fargpu = prefix / "bin" / "fargpu"
        self.check_program(testing.run([fargpu, "run", "--sim", "--", self.program], input=""))

    def test_a_client_is_small(self):
        client = self.installed("client", "client")
        names = {pathlib.Path(file).name for file in files_of(client)}
        travelling = {name for name in names if name.startswith(("libcapnp", "libkj"))}
        self.assertEqual(
            names - travelling,
            {
                "70-fargpu.rules",
                "fargpu",
                "fargpu-measure",
                "libcuda.so",
                "libcuda.so.1",
                "libnvcuvid.so.1",
                "libnvidia-ml.so.1",
                "LICENSE",
            },
        )

    def test_the_targets_of_the_product_build_all_that_is_installed(self):
        install(self.folder / "all")
        everything = binaries_of(self.folder / "all")
        self.assertIn("libcuda.so.1", everything)
        self.assertEqual(everything - linked_for("product"), set())
        parts = set()
        for component in COMPONENTS:
            install(self.folder / component, component)
            names = binaries_of(self.folder / component)
            if names:
                self.assertEqual(names - linked_for(f"product-{component}"), set(), component)
            parts |= names
        self.assertEqual(parts, everything)

    def test_the_unit_and_the_configuration(self):
        prefix = self.folder / "prefix"
        install(prefix, "server")
        unit = (prefix / "lib" / "systemd" / "system" / "fargpud.service").read_text()
        configuration = prefix / "etc" / "fargpu" / "fargpud.toml"
        self.assertIn(f"ExecStart={prefix}/bin/fargpud --config {configuration}\n", unit)
        self.assertNotIn("@", unit)
        users = prefix / "lib" / "sysusers.d" / "fargpud.conf"
        self.assertIn(str(users), unit)
        self.assertIn("\nu fargpu ", users.read_text())
        configuration.write_text("job-grace = 1\n")
        install(prefix, "server")
        self.assertEqual(configuration.read_text(), "job-grace = 1\n")

    def test_the_rule_of_udev(self):
        install("/usr", "client", destdir=self.folder)
        rule = self.folder / "usr" / "lib" / "udev" / "rules.d" / "70-fargpu.rules"
        lines = [line for line in rule.read_text().splitlines() if not line.startswith("#")]
        self.assertEqual(lines, ['KERNEL=="userfaultfd", GROUP="users", MODE="0660"'])

    def test_a_package(self):
        install("/usr", "server", destdir=self.folder)
        files = files_of(self.folder)
        self.assertIn("etc/fargpu/fargpud.toml", files)
        self.assertIn("usr/lib/sysusers.d/fargpud.conf", files)
        unit = (self.folder / "usr" / "lib" / "systemd" / "system" / "fargpud.service").read_text()
        self.assertIn("ExecStart=/usr/bin/fargpud --config /etc/fargpu/fargpud.toml\n", unit)

    def test_the_pages(self):
        install(self.folder, "docs")
        pages = self.folder / "share" / "doc" / "fargpu"
        for page in ("README.md", "LICENSE", "docs/architecture.md", "examples/vector_add.cu"):
            self.assertTrue((pages / page).is_file(), page)
        files = files_of(pages)
        texts = {name: (pages / name).read_text() for name in files if name.endswith(".md")}
        names = lint_links.everything(files)
        for name, text in texts.items():
            self.assertEqual(lint_links.link_problems(name, text, texts, names), [])


if __name__ == "__main__":
    testing.main()

"""Tests that tools/tidy.py finds each kind of planted violation, reports nothing for tidy files, and lets the baseline only shrink."""

import json
import pathlib
import subprocess
import sys
import textwrap

import pytest

SOURCE_DIR = pathlib.Path(__file__).resolve().parents[2]
TIDY = SOURCE_DIR / "tools" / "tidy.py"


def run(root: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, TIDY, "--root", root, *arguments], capture_output=True, text=True, timeout=60)


def write(root: pathlib.Path, file: str, text: str) -> None:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    for folder in list(path.relative_to(root).parents)[:-1]:
        readme = root / folder / "README.md"
        if not readme.exists():
            readme.write_text("# A folder\n\nThis folder holds what a test plants.\n")


def found(root: pathlib.Path) -> list[str]:
    """Returns RULE FILE:LINE of each finding."""
    lines = run(root, "--list").stdout.splitlines()
    return sorted(f"{rule} {place}" for place, rule, _ in (line.split(": ", 2) for line in lines))


def statements(count: int) -> str:
    return "".join(f"  Count({i});\n" for i in range(count))


def test_a_function_of_71_lines_is_found_and_one_of_70_is_not(tmp_path):
    write(tmp_path, "common/a.cc", f"void Long() {{\n{statements(69)}}}\n\nvoid Short() {{\n{statements(68)}}}\n")
    assert found(tmp_path) == ["function-length common/a.cc:1"]


def test_functions_are_distinguished_from_namespaces_classes_and_initializers(tmp_path):
    write(tmp_path, "services/a.cc", f"""\
namespace tandem {{
namespace {{
class A {{
 public:
  A() : a_{{1}}, b_(2) {{
{statements(71)}
  }}
  int Get() const noexcept {{ return a_; }}

 private:
  int a_{{0}};
  int b_ = 0;
}};
}}  // namespace
template <class T>
auto B::Run(const std::function<void(T)>& f) -> std::vector<T> {{
{statements(71)}
}}
{statements(0)}
}}  // namespace tandem
""")
    assert found(tmp_path) == ["function-length services/a.cc:5", "function-length services/a.cc:87"]


def test_braces_in_strings_and_comments_do_not_count(tmp_path):
    write(tmp_path, "common/a.cc", f"""\
const char kText[] = "void F() {{";  // void G() {{
const char kRaw[] = R"x(void H() {{ " )x";
const int kMillion = 1'000'000; const char kBrace = '{{';
{statements(80)}
void F() {{
  Count(1);
}}
""")
    assert found(tmp_path) == []


def test_the_lines_of_a_table_do_not_count(tmp_path):
    rows = "".join(f'      {{"row {i}", {i}}},\n' for i in range(90))
    write(tmp_path, "common/a.cc", f"int F() {{\n  static const Row kRows[] = {{\n{rows}  }};\n  return kRows[0].value;\n}}\n")
    assert found(tmp_path) == []


def test_the_lines_of_a_lambda_count(tmp_path):
    write(tmp_path, "common/a.cc", f"void F() {{\n  Run([&](int x) {{\n{statements(71)}  }});\n}}\n")
    assert found(tmp_path) == ["function-length common/a.cc:1"]


def test_a_braced_initializer_with_code_in_it_is_no_table(tmp_path):
    def function(member: str) -> str:
        return f"void F() {{\n  Set({{\n      .stop = {member},\n      .patience = 1,\n  }});\n}}\n"

    write(tmp_path, "proto/a.cc", function(f"[&] {{\n{statements(71)}  }}"))
    assert found(tmp_path) == ["function-length proto/a.cc:1"]
    write(tmp_path, "proto/a.cc", function("{\n" + "1,\n" * 71 + "}"))
    assert found(tmp_path) == []


def test_functions_of_tests_and_benchmarks_have_the_same_limit(tmp_path):
    for folder in ("kernels", "common", "services", "proto", "tests", "bench"):
        write(tmp_path, f"{folder}/a.cc", f"void Long() {{\n{statements(69)}}}\n")
    assert found(tmp_path) == [f"function-length {folder}/a.cc:1" for folder in ("bench", "common", "kernels", "proto", "services", "tests")]


@pytest.mark.parametrize("file, width", [("common/a.h", 100), ("proto/a.proto", 100), ("bench/a.py", 140), ("deploy/a.sh", 140)])
def test_a_line_of_too_many_columns_is_found(tmp_path, file, width):
    mark = "//" if file.endswith((".h", ".proto")) else "# "
    write(tmp_path, file, f"{mark}{'é' * (width - 2)}\n{mark}{'é' * (width - 1)}\n")
    assert found(tmp_path) == [f"columns {file}:2"]


def test_markdown_may_have_long_lines(tmp_path):
    write(tmp_path, "docs/a.md", "word " * 200 + "\n")
    assert found(tmp_path) == []


def test_comments_that_begin_with_of_whose_or_whom_are_found(tmp_path):
    write(tmp_path, "common/a.h", """\
        // Of a prompt, beside others.
        int a;  // of a slot
        int b;  // Whose turn it is.
        /* Whom it serves. */
        // What of it is left.
        // This comment speaks
        // of something in its second line, and that is
        int c;  // a noun that continues
                // of which the second line says more
        // A sentence.
        // Of another sentence.
        const char* d = "// Of a string.";
    """)
    assert found(tmp_path) == [f"comment-start common/a.h:{line}" for line in (1, 11, 2, 3, 4, 5)]


def test_comments_of_scripts_are_read_too(tmp_path):
    write(tmp_path, "bench/a.py", '''\
        def f():
            """Of nothing."""
            return "# Of a string"  # of a number
    ''')
    write(tmp_path, "deploy/a.sh", '#!/bin/sh\n# Whose shell it is.\necho "${#of}"\n')
    assert found(tmp_path) == ["comment-start bench/a.py:2", "comment-start bench/a.py:3", "comment-start deploy/a.sh:2"]


@pytest.mark.parametrize("file, comment", [
    ("helm/a.tpl", "{{/* %s */}}"),
    ("helm/a.yaml", "{{- /*\n%s */ -}}"),
    ("helm/b.yaml", "key: value  # %s"),
    ("helm/NOTES.txt", "{{- /* %s */ -}}"),
    ("page/a.js", "// %s"),
    ("page/a.css", "a { color: red; }  /* %s */"),
    ("page/a.html", "<!-- %s -->"),
    ("deploy/Dockerfile", "# %s"),
    (".gitignore", "# %s"),
])
def test_comments_of_templates_pages_and_images_are_read_too(tmp_path, file, comment):
    write(tmp_path, file, comment % "of every container." + "\n")
    assert found(tmp_path) == [f"comment-start {file}:{1 + comment.count(chr(10))}"]
    write(tmp_path, file, comment % "Every container has one." + "\n")
    assert found(tmp_path) == []


def test_strings_of_a_script_are_no_comments(tmp_path):
    write(tmp_path, "page/a.js", """const a = `//of a`, b = "//of b", c = '//of c';\n""")
    assert found(tmp_path) == []


def test_a_class_of_more_than_500_lines_is_found_with_its_functions_elsewhere(tmp_path):
    functions = "".join(f"void A::F{i}() {{\n{statements(48)}}}\n" for i in range(10))
    declared = "".join(f"  void F{i}();\n" for i in range(10))
    write(tmp_path, "services/x/a.h", f"class A {{\n public:\n{declared}}};\n")
    write(tmp_path, "services/x/a.cc", functions + "void Use(A& a) {\n" + "".join(f"  a.F{i}();\n" for i in range(10)) + "}\n")
    assert found(tmp_path) == ["class-size services/x/a.h:1"]


def test_a_class_of_21_fields_is_found(tmp_path):
    fields = "".join(f"  int f{i}_ = {i};\n" for i in range(20))
    more = """\
  static constexpr int kConstant = 1;
  using T = int;
  enum class Kind { kA, kB };
  void* Pointer() const;
"""
    use = "void* B(A& a) { return a.Pointer(); }\n"
    write(tmp_path, "services/a.h", f"class A {{\n{more}{fields}}};\n{use}")
    assert found(tmp_path) == []
    write(tmp_path, "services/a.h", f"class A {{\n{more}{fields}  std::map<int, int> last_{{}};\n}};\n{use}")
    assert found(tmp_path) == ["class-fields services/a.h:1"]


def struct(name: str, count: int) -> str:
    return f"struct {name} {{\n" + "".join(f"  int f{i} = {i};\n" for i in range(count)) + "};\n"


@pytest.mark.parametrize("place", ["nested", "beside", "included", "included by an included file"])
@pytest.mark.parametrize("member, counts", [
    ("Bundle bundle_;", True),
    ("const Bundle bundle_{1, 2};", True),
    ("mutable tandem::Bundle bundle_;", True),
    ("std::vector<Bundle> bundles_;", False),
    ("Bundle* bundle_;", False),
    ("const Bundle& bundle_;", False),
])
def test_the_fields_of_a_bundled_struct_count_one_by_one(tmp_path, place, member, counts):
    fields = "".join(f"  int g{i}_;\n" for i in range(9))
    before, inside = "", ""
    if place == "nested":
        inside = struct("Bundle", 12)
        member = member.replace("tandem::", "A::")
    elif place == "beside":
        before = struct("Bundle", 12)
    else:
        write(tmp_path, "common/b.h", struct("Bundle", 12))
        write(tmp_path, "services/c.h", '#include "common/b.h"\n')
        before = '#include "common/b.h"\n' if place == "included" else '#include "services/c.h"\n'
    write(tmp_path, "services/a.h", f"{before}class A {{\n{inside}{fields}  {member}\n}};\n")
    assert [line.split(":")[0] for line in found(tmp_path)] == ["class-fields services/a.h"] * counts


def test_bundles_of_bundles_and_structs_without_a_name_count_too(tmp_path):
    write(tmp_path, "common/b.h", struct("Inner", 12))
    write(tmp_path, "services/b.h", '#include "common/b.h"\nstruct Outer {\n  Inner inner;\n};\n')
    unnamed = struct("", 9).replace("};", "} unnamed_;")
    write(tmp_path, "services/a.h", f'#include "services/b.h"\nclass A {{\n  Outer outer_;\n  {unnamed}}};\n')
    assert found(tmp_path) == ["class-fields services/a.h:2"]


def test_a_struct_inside_of_a_class_counts_as_a_class(tmp_path):
    write(tmp_path, "services/a.h", struct("State", 21) + "class B {\n  struct Impl;\n};\n" + struct("B::Impl", 21))
    assert found(tmp_path) == ["class-fields services/a.h:27"]
    write(tmp_path, "services/a.h", "class B {\n  struct Options;\n};\n" + struct("B::Options", 21))
    assert found(tmp_path) == []


def test_a_member_that_holds_values_is_one_field(tmp_path):
    write(tmp_path, "services/b.h", struct("ServerOptions", 30))
    fields = "".join(f"  int g{i}_;\n" for i in range(19))
    write(tmp_path, "services/a.h", f'#include "services/b.h"\nclass A {{\n{fields}  const ServerOptions options_;\n}};\n')
    assert found(tmp_path) == []


def test_a_declared_function_that_nobody_names_is_found(tmp_path):
    write(tmp_path, "common/a.h", """\
        int Used(int x);
        int Dead(int x);
        class A {
         public:
          explicit A(int x);
          ~A();
          int size() const { return 1; }
          int dead() const { return 2; }
          void OnCall() override;
          bool operator==(const A& other) const;
        };
    """)
    write(tmp_path, "common/a.cc", "int Used(int x) { return x; }\nint Dead(int x) { return x; }\n")
    write(tmp_path, "tests/a_test.cc", "int main() { return Used(1) + A(1).size(); }\n")
    assert found(tmp_path) == ["dead-declaration common/a.h:2", "dead-declaration common/a.h:8"]


def test_broken_links_and_anchors_are_found(tmp_path):
    write(tmp_path, "docs/b.md", "# Title\n\n## Two words, `code`\n\n## Twice\n\n## Twice\n")
    write(tmp_path, "docs/a.md", """\
        # Here
        [a](b.md), [b](b.md#two-words-code), [c](#here), [d](../docs/b.md#twice-1), [e](https://example.com/x)
        [a](c.md)
        [b](b.md#three-words)
        [c](#there)
        `[d](c.md)` is code.
        ```
        [e](c.md)
        ```
    """)
    assert [line for line in found(tmp_path) if not line.endswith(":6")] == [f"link docs/a.md:{i}" for i in (3, 4, 5)]


def test_paths_that_do_not_exist_are_found(tmp_path):
    write(tmp_path, "common/a/b.h", "")
    write(tmp_path, "docs/a.md", "`common/a/b.h`, `common/a`, `common/a/b`, `elsewhere/x.h`, `common/*.h`, `common/NAME.h`\n`common/c.h`\n")
    assert found(tmp_path) == ["path docs/a.md:2"]


def test_presets_that_do_not_exist_are_found(tmp_path):
    presets = [{"name": "base", "hidden": True}, {"name": "tsan"}, {"name": "cpu-release"}]
    write(tmp_path, "CMakePresets.json", json.dumps({"configurePresets": presets}))
    write(tmp_path, "docs/a.md", """\
        `tools/build.sh`, `tools/build.sh PRESET`, `tools/build.sh cpu-release router`, `cmake --preset=tsan`
        `tools/build.sh asan`, `cmake --preset=base`
        ```sh
        tools/build.sh          # everything
        cmake --preset cpu
        ```
    """)
    assert found(tmp_path) == ["preset docs/a.md:2", "preset docs/a.md:2", "preset docs/a.md:5"]


def test_british_spellings_are_found_outside_of_quotations(tmp_path):
    write(tmp_path, "common/a.h", "int AddNeighbours();  // Its colour.\n")
    write(tmp_path, "common/a.cc", "int main() { return AddNeighbours(); }\n")
    write(tmp_path, "docs/a.md", """\
        The behaviour of `normalise`, see https://example.com/colour.
        ```
        colour
        ```
        A promise, a precise exercise, the emphasis, otherwise advised; it characterizes four optimistic models.
    """)
    assert found(tmp_path) == ["spelling common/a.cc:1", "spelling common/a.h:1", "spelling common/a.h:1", "spelling docs/a.md:1"]


def test_canceled_has_one_l_except_in_names_that_others_chose(tmp_path):
    write(tmp_path, "tests/a.cc", """\
        int main() { return c->IsCancelled() ? grpc::CANCELLED : absl::CancelledError(absl::kCancelled); }
        const char kKey[] = "cancelled";
        bool cancelled = TryCancel();
        TEST(A, CancellingEndsACall) {}  // It was cancelled.
    """)
    assert found(tmp_path) == ["spelling tests/a.cc:3", "spelling tests/a.cc:4", "spelling tests/a.cc:4"]


def test_a_folder_without_a_readme_is_found_unless_the_next_one_above_names_it(tmp_path):
    (tmp_path / "deploy/compose/grafana").mkdir(parents=True)
    (tmp_path / "deploy/compose/grafana/a.json").write_text("{}\n")
    folders = ["folder-readme deploy/compose/grafana:1", "folder-readme deploy/compose:1"]
    assert found(tmp_path) == ["folder-readme deploy/compose/grafana:1", "folder-readme deploy/compose:1", "folder-readme deploy:1"]
    (tmp_path / "deploy/README.md").write_text("# Deployment\n\nThis folder holds `grafana/` and `compose`.\n")
    assert found(tmp_path) == folders
    (tmp_path / "README.md").write_text("# Tandem\n\nSee `deploy/compose/` and `deploy/compose/grafana/`.\n")
    assert found(tmp_path) == folders
    (tmp_path / "deploy/README.md").write_text("# Deployment\n\n| folder |\n| --- |\n| `compose/`, `compose/NAME/` |\n")
    assert found(tmp_path) == ["folder-readme deploy:1"]
    (tmp_path / "deploy/README.md").write_text("# Deployment\n\nThis folder holds a file.\n\n| `compose/`, `compose/NAME/` |\n")
    assert found(tmp_path) == []


def test_a_folder_of_13_units_is_found_unless_an_adr_lists_it(tmp_path):
    for i in range(12):
        for end in (".h", ".cc", "_cuda.cu", "_cpu.cc", "_reference.cc"):
            write(tmp_path, f"kernels/k{i}{end}", "")
    assert found(tmp_path) == []
    write(tmp_path, "kernels/another.h", "")
    assert found(tmp_path) == ["folder-units kernels:1"]
    write(tmp_path, "docs/adr/0001-folders.md", "# Folders\n\n- `kernels/` has 13 units, one per kernel.\n")
    assert found(tmp_path) == []
    (tmp_path / "kernels/another.h").unlink()
    assert found(tmp_path) == ["folder-units kernels:1"]


def test_the_baseline_lets_known_findings_pass_and_only_shrinks(tmp_path):
    write(tmp_path, "tools/tidy_baseline.txt", "# Known.\nspelling 2 docs/a.md\n")
    write(tmp_path, "docs/a.md", "colour\n\nbehaviour\n")
    assert run(tmp_path).returncode == 0

    write(tmp_path, "docs/a.md", "colour\n\nbehaviour\n\nneighbour\n")
    result = run(tmp_path)
    assert result.returncode == 1
    assert "docs/a.md has 3 findings of spelling; 2 are known" in result.stderr
    assert "docs/a.md:5: spelling: neighbour" in result.stdout
    assert run(tmp_path, "--update-baseline").returncode == 1
    assert (tmp_path / "tools/tidy_baseline.txt").read_text().endswith("\nspelling 2 docs/a.md\n")

    write(tmp_path, "docs/a.md", "colour\n")
    result = run(tmp_path)
    assert result.returncode == 1
    assert "docs/a.md has 1 findings of spelling, and tools/tidy_baseline.txt says 2" in result.stderr
    assert run(tmp_path, "--update-baseline").returncode == 0
    assert (tmp_path / "tools/tidy_baseline.txt").read_text().endswith("\nspelling 1 docs/a.md\n")
    assert run(tmp_path).returncode == 0

    write(tmp_path, "docs/a.md", "color\n")
    assert run(tmp_path).returncode == 1
    assert run(tmp_path, "--update-baseline").returncode == 0
    assert "docs/a.md" not in (tmp_path / "tools/tidy_baseline.txt").read_text()


def test_a_test_that_no_list_names_is_found(tmp_path):
    write(tmp_path, "tests/system/test_named.py", "")
    write(tmp_path, "tests/system/test_forgotten.py", "")
    write(tmp_path, "tests/system/CMakeLists.txt", "tandem_system_test_file(named)\n")
    write(tmp_path, "tests/kernels/named_test.cc", "")
    write(tmp_path, "tests/kernels/forgotten_test.cc", "")
    write(tmp_path, "tests/kernels/CMakeLists.txt", "tandem_test(kernels_test SOURCES named_test.cc)\n")
    assert found(tmp_path) == ["test-registered tests/kernels/forgotten_test.cc:1", "test-registered tests/system/test_forgotten.py:1"]

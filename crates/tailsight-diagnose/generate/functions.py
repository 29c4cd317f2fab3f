#!/usr/bin/env python3
"""Writes data/functions.toml, the kernel functions of the category table (NSight section 5.2), and checks it.

In: subsystems.txt beside this script, and the functions of a kernel: /proc/kallsyms or a System.map. Out: every function
of that kernel that a subsystem names, by category and sub-category, sorted; the same input gives the same bytes.

    generate/functions.py [--symbols FILE]           write the table from this kernel's functions
    generate/functions.py --check FILE               how many of the table's functions FILE has; writes nothing
    generate/functions.py --explain NAME...          which subsystem names a function, by which word

Exit codes: 0 done, 1 failed (an exact name is not in the kernel; --check: fewer than 1,350 functions exist), 2 usage.
Only the standard library is needed.
"""

import argparse
import fnmatch
import pathlib
import platform
import re
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
SUBSYSTEMS = HERE / "subsystems.txt"
STACKS = HERE.parent / "data" / "stacks.toml"
TABLE = HERE.parent / "data" / "functions.toml"
WIDTH = 120
MINIMUM = 1350

# What no message meets, or what is generated beside a function of another name: a wildcard never takes these.
UNMET = re.compile(
    r"^(__pfx_|__traceiter_|trace_event_raw|trace_raw_output|perf_trace_|__bpf_trace_|__probestub_|__ksym|__SC[KT]__|"
    r"__(x64|ia32|do|se)_(compat_)?sys_|bpf_dispatcher|event_class|print_fmt|__export|__UNIQUE|__warned|__compat_sys|"
    r"compat_|set_feature|e820|early_|__early)"
    r"|(_|^)(init|show|store|register|unregister|seq_(start|stop|next|show|open)|sysctl|debugfs|sysfs|procfs|nlattr|dumpit|"
    r"netlink|genl|fill_info|get_size|ioctl|setsockopt|getsockopt|module|driver|probe_pci|fill_super|mount|setup|selftest|"
    r"kunit|func_proto|is_valid_access|convert_ctx_access|mem_usage|show_fdinfo|diag|ethtool|get_drvinfo|get_strings|"
    r"get_sset_count|link_ksettings|ringparam|channels|coalesce|newlink|dellink|changelink|policy_init|stats64|get_stats)"
    r"(_|$)|(_init|_exit|_fini)_net$|^init_|_init$|_setup$|_handler_sysctl$|_sysctl_handler$"
)


def plain(name):
    """A function without what the compiler appended (.constprop.0, .isra.0, .part.0, .cold, .llvm.N)."""
    return name.split(".")[0] if not name.startswith(".") else name


def symbols(path):
    """The functions of a symbol list: lines `address type name [module]`."""
    out = set()
    with open(path, encoding="ascii", errors="replace") as lines:
        for line in lines:
            fields = line.split()
            # BPF programs and their trampolines come and go; they are nobody's source.
            if len(fields) > 3 and fields[3].startswith(("[bpf", "[__builtin__")):
                continue
            if len(fields) >= 3 and fields[1] in "tTwW":
                name = plain(fields[2])
                if not name.startswith(("__pfx_", "__cfi_")):
                    out.add(name)
    if not out:
        sys.exit(f"{path} holds no function: give a System.map or /proc/kallsyms")
    return out


class Subsystem:
    """One [category sub] of subsystems.txt."""

    def __init__(self, category, sub):
        self.category, self.sub = category, sub
        self.exact, self.kernels, self.wild, self.without = {}, {}, [], []

    def add(self, word):
        negative = word.startswith("-")
        word = word[1:] if negative else word
        if negative:
            self.without.append(word)
        elif word.startswith("~"):
            self.kernels[word[1:]] = "inlined"
        elif "<" in word or ">=" in word:
            name, sign, version = re.fullmatch(r"([^<>]+)(<|>=)([0-9.]+)", word).groups()
            self.kernels[name] = ("until " if sign == "<" else "since ") + version
        elif "*" in word or "?" in word:
            self.wild.append(word)
        else:
            self.exact[word] = None

    def compiled(self):
        join = lambda words: re.compile("|".join(fnmatch.translate(w) for w in words) or r"(?!)")
        self.wild_re, self.without_re = join(self.wild), join(self.without)
        return self

    def why(self, name):
        """The word that names it, or None."""
        if name in self.exact or name in self.kernels:
            return name
        bare = name.lstrip("_")
        if self.without_re.match(name) or self.without_re.match(bare) or UNMET.search(name):
            return None
        if self.wild_re.match(name) or self.wild_re.match(bare):
            return next(w for w in self.wild if fnmatch.fnmatchcase(name, w) or fnmatch.fnmatchcase(bare, w))
        return None


def subsystems():
    out = []
    for number, line in enumerate(SUBSYSTEMS.read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        if line.startswith("["):
            category, sub = line.strip("[]").split()
            out.append(Subsystem(category, sub))
            continue
        if not out:
            sys.exit(f"{SUBSYSTEMS.name}:{number}: words before the first [category sub]")
        for word in line.split():
            out[-1].add(word)
    return [s.compiled() for s in out]


def assign(every, names):
    """Function to (category, sub, kernels); a name that is spelled out goes before any wildcard."""
    out, spelled = {}, {}
    # Wrappers are never asked, so no entry names them.
    wrappers = re.compile("|".join(map(fnmatch.translate, tomllib.loads(STACKS.read_text())["transparent"])))
    names = {n for n in names if not wrappers.match(n)}
    for s in every:
        for name in s.exact:
            spelled.setdefault(name, s)
    for s in every:
        for name, kernels in s.kernels.items():
            there = name in names
            if not there or name not in spelled:
                # A note about other kernels stays only while it is true of the one at hand.
                kernels = None if there and not kernels.startswith(("until", "since")) else kernels
                out.setdefault(name, (s.category, s.sub, kernels))
    for name in sorted(names):
        if name in spelled:
            out[name] = (spelled[name].category, spelled[name].sub, None)
        elif name not in out:
            for s in every:
                if s.why(name):
                    out[name] = (s.category, s.sub, None)
                    break
    return out


def table(assigned, release):
    groups = {}
    for name, (category, sub, kernels) in assigned.items():
        groups.setdefault((category, sub, kernels or ""), []).append(name)
    here = sum(len(g) for (_, _, k), g in groups.items() if not k or k.startswith("since"))
    lines = [
        "# Kernel functions to categories and sub-categories (NSight section 5.2: \"we categorize 1350 functions in Linux by hand\").",
        "# Written by generate/functions.py from generate/subsystems.txt: change that, not this.",
        f"# {here} functions of Linux {release}, and {len(assigned) - here} of other kernels or builds:",
        "# `until` a version it is gone, `since` it is there, `inlined`: compiled into its callers in the build that was checked.",
        "",
    ]
    for (category, sub, kernels), names in sorted(groups.items()):
        lines += ["[[functions]]", f'category = "{category}"', f'sub = "{sub}"']
        if kernels == "inlined":
            lines.append("inlined = true")
        elif kernels:
            key, version = kernels.split()
            lines.append(f'{key} = "{version}"')
        lines.append('names = """')
        row = ""
        for name in sorted(names):
            if row and len(row) + 1 + len(name) > WIDTH:
                lines.append(row)
                row = name
            else:
                row = f"{row} {name}".strip()
        lines += [row, '"""', ""]
    return "\n".join(lines).rstrip("\n") + "\n", here


def check(path):
    there = symbols(path)
    have = missing = other = 0
    gone = []
    for block in TABLE.read_text().split("[[functions]]")[1:]:
        names = block.split('"""')[1].split()
        if re.search(r"^(until|inlined) = ", block, re.M):
            other += len(names)
            continue
        found = [n for n in names if n in there]
        have += len(found)
        missing += len(names) - len(found)
        gone += [n for n in names if n not in there]
    print(f"{have} of {have + missing} functions exist in {path} ({other} more belong to other kernels or are inlined)")
    if gone:
        print("not there: " + " ".join(gone), file=sys.stderr)
    return 0 if have >= MINIMUM else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--symbols", default="/proc/kallsyms", help="kallsyms or System.map (default: %(default)s)")
    parser.add_argument("--release", help="the kernel that FILE belongs to (default: the running one)")
    parser.add_argument("--check", metavar="FILE", help="only say how many functions of the table FILE has")
    parser.add_argument("--explain", metavar="NAME", nargs="+", help="say which subsystem names these functions")
    parser.add_argument("--allow-missing", action="store_true", help="warn about exact names that the kernel lacks")
    options = parser.parse_args()
    if options.check:
        return check(options.check)
    every = subsystems()
    if options.explain:
        for name in options.explain:
            said = next(((s.category, s.sub, s.why(name)) for s in every if s.why(name)), None)
            print(name, "->", "no subsystem" if said is None else "{} {} by {}".format(*said))
        return 0
    names = symbols(options.symbols)
    absent = sorted({n for s in every for n in s.exact if n not in names})
    if absent:
        print(f"{len(absent)} exact names are not in {options.symbols}: {' '.join(absent)}", file=sys.stderr)
        if not options.allow_missing:
            return 1
    release = options.release or ".".join(platform.release().split("-")[0].split(".")[:2])
    text, here = table(assign(every, names), release)
    TABLE.write_text(text)
    print(f"{TABLE.name}: {here} functions of {len(names)} in {options.symbols}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

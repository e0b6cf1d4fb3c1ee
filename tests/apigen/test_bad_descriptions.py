"""Every mistake in a description is one line that says where and what."""

import unittest

from fixture import Description


class BadDescriptions(Description):
    def test_not_yaml(self):
        self.refused("# x\n- fn: [\n", "api/driver/demo.yml:", "not YAML")

    def test_internal_calls_are_of_numbers(self):
        for parameters, args in (
            ("const CUlaunchConfig *p", "{p: {in: struct}}"),
            ("CUmemLocation *p", "{p: {out: struct}}"),
        ):
            (self.schema / "api" / "internal.yml").write_text(
                f"# x\n- fn: CUresult fgA({parameters})\n  call: sync\n  server: manual\n"
                f"  why: w\n  args: {args}\n"
            )
            one = "# x\n- fn: CUresult cuA(int a)\n  since: 1\n  call: sync\n"
            self.refused(one, "internal.yml:2", "fgA: an internal call has no arrays in structs")

    def test_double_key(self):
        self.refused(
            "# x\n- fn: CUresult cuA(int a)\n  since: 1\n  call: sync\n  call: async\n",
            "demo.yml:5",
            "'call' is given twice",
        )

    def test_key_of_group_and_function(self):
        group = "# x\n- call: sync\n  functions:\n"
        one = "  - fn: CUresult cuA(int a)\n    since: 1\n"
        self.refused(f"{group}{one}    call: async\n", "demo.yml:6", "the group says 'call'")
        self.refused(f"{group}  - cuA\n", "demo.yml:3", "'functions' is a list of functions")
        self.refused(group.replace("sync", "maybe") + one, "demo.yml:2", "'maybe' is none of")

    def test_unknown_key(self):
        self.refused(
            "# x\n- fn: CUresult cuA(int a)\n  since: 1\n  call: sync\n  colour: red\n",
            "demo.yml:5",
            "cuA: unknown key 'colour'",
        )

    def test_unknown_class(self):
        self.refused(
            "# x\n- fn: CUresult cuA(int a)\n  since: 1\n  call: maybe\n",
            "demo.yml:4",
            "'maybe' is none of",
        )

    def test_class_missing(self):
        self.refused(
            "# x\n- fn: CUresult cuA(int a)\n  since: 1\n", "demo.yml:2", "'call' is missing"
        )

    def test_no_prototype(self):
        self.refused("# x\n- fn: void cuA\n  call: sync\n", "demo.yml:2", "is not a prototype")

    def test_parameter_without_name(self):
        self.refused(
            "# x\n- fn: CUresult cuA(int)\n  since: 1\n  call: sync\n",
            "demo.yml:2",
            "needs a type and a name",
        )

    def test_why_missing(self):
        for call in ("local", "manual", "unsupported"):
            self.refused(
                f"# x\n- fn: CUresult cuA(int a)\n  since: 1\n  call: {call}\n",
                "demo.yml:2",
                "a reason is needed",
            )

    def test_loading_without_message(self):
        self.refused(
            "# x\n- fn: CUresult cuA(int a)\n  since: 1\n  call: local\n  why: w\n  drains: true\n",
            "demo.yml:6",
            "'drains' needs a message",
        )

    def test_work_and_synchronisation(self):
        head = "# x\n- fn: CUresult cuA(%s)\n  since: 1\n"
        for key in ("queues", "works"):
            self.refused(
                head % "int a" + f"  call: async\n  {key}: true\n",
                "demo.yml:2",
                f"cuA: '{key}' needs one stream",
            )
            self.refused(
                head % "CUstream a, CUstream b" + f"  call: async\n  {key}: true\n",
                f"cuA: '{key}' needs one stream",
            )
            self.refused(
                head % "CUstream s" + f"  call: local\n  why: w\n  {key}: true\n",
                "demo.yml:6",
                f"cuA: '{key}' needs a message",
            )
            self.refused(
                head % "CUstream s" + f"  call: async\n  {key}: often\n",
                "demo.yml:5",
                f"cuA: '{key}' is true or false",
            )
        self.refused(
            head % "CUstream s" + "  call: async\n  synchronises: stream\n",
            "demo.yml:2",
            "cuA: 'synchronises' needs an answer",
        )
        self.refused(
            head % "int a" + "  call: sync\n  synchronises: stream\n",
            "demo.yml:2",
            "cuA: 'synchronises: stream' needs one stream",
        )
        self.refused(
            head % "int a" + "  call: sync\n  synchronises: true\n",
            "demo.yml:5",
            "'True' is none of",
        )
        self.refused(
            head % "CUstream s" + "  call: local\n  why: w\n  synchronises: some\n",
            "demo.yml:6",
            "cuA: 'synchronises' needs a message",
        )

    def test_capture(self):
        self.refused(
            "# x\n- fn: CUresult cuA(int a)\n  since: 1\n  call: sync\n  capture: maybe\n",
            "demo.yml:5",
            "'maybe' is none of",
        )
        self.refused(
            "# x\n- fn: CUresult cuA(int a)\n  since: 1\n  call: unsupported\n  why: w\n"
            "  capture: free\n",
            "demo.yml:6",
            "'capture' is measured when",
        )

    def test_pointer_without_direction(self):
        self.refused(
            "# x\n- fn: CUresult cuA(int *a)\n  since: 1\n  call: sync\n",
            "cuA: a: 'int*' cannot travel",
            "in, out, inout",
        )

    def test_unknown_type(self):
        self.refused(
            "# x\n- fn: CUresult cuA(CUnothing a)\n  since: 1\n  call: sync\n",
            "demo.yml:2",
            "not in types.yml",
        )

    def test_args_of_no_parameter(self):
        self.refused(
            "# x\n- fn: CUresult cuA(int a)\n  since: 1\n  call: sync\n"
            "  args:\n    b: {out: value}\n",
            "demo.yml:6",
            "no parameter 'b'",
        )

    def test_array_without_length(self):
        self.refused(
            "# x\n- fn: CUresult cuA(const int *a)\n  since: 1\n  call: sync\n"
            "  args:\n    a: {in: array}\n",
            "demo.yml:6",
            "in: array needs 'len'",
        )

    def test_const_output(self):
        self.refused(
            "# x\n- fn: CUresult cuA(const int *a)\n  since: 1\n  call: sync\n"
            "  args: {a: {out: value}}\n",
            "an output cannot be const",
        )

    def test_output_of_async(self):
        self.refused(
            "# x\n- fn: CUresult cuA(int *a)\n  since: 1\n  call: async\n"
            "  args: {a: {out: value}}\n",
            "call: async cannot bring outputs back",
        )

    def test_deferred_creates_nothing(self):
        self.refused(
            "# x\n- fn: CUresult cuA(int a)\n  since: 1\n  call: deferred\n",
            "call: deferred needs a created handle",
        )

    def test_wrong_kind(self):
        self.refused(
            "# x\n- fn: CUresult cuA(CUstream s)\n  since: 1\n  call: sync\n"
            "  args: {s: {destroys: event}}\n",
            "the handle is a stream",
        )
        self.refused(
            "# x\n- fn: CUresult cuA(CUstream *s)\n  since: 1\n  call: sync\n"
            "  args: {s: {out: handle, creates: event}}\n",
            "creates: stream",
        )

    def test_allocation_without_size(self):
        self.refused(
            "# x\n- fn: CUresult cuA(CUdeviceptr *p)\n  since: 1\n  call: sync\n"
            "  args: {p: {out: devptr, creates: allocation}}\n",
            "'size'",
        )

    def test_described_twice(self):
        self.refused(
            "# x\n" + 2 * "- fn: CUresult cuA(int a)\n  since: 1\n  call: sync\n",
            "demo.yml:5",
            "already described at api/driver/demo.yml:2",
        )

    def test_via_unlike(self):
        text = (
            "# x\n- fn: CUresult cuA(int a)\n  since: 1\n  call: local\n  why: w\n  via: cuB\n"
            "- fn: CUresult cuB(%s)\n  since: 1\n  call: async\n%s"
        )
        by_hand = "  client: manual\n  why: w\n"
        self.refused(text % ("int a", ""), "demo.yml:2", "via 'cuB'", "which is not by hand")
        for parameters in ("size_t a", "CUstream a, unsigned b"):
            why = "which must have the same parameters, or more"
            self.refused(text % (parameters, by_hand), "demo.yml:2", "via 'cuB'", why)

    def test_via_with_more(self):
        """What the other function has besides is 0."""
        entry = self.cpp(
            "# x\n- fn: CUresult cuA(int a, CUevent e)\n  since: 1\n  call: local\n  why: w\n"
            "  via: cuB\n"
            "- fn: CUresult cuB(int a, size_t *n, CUevent e, CUstream s)\n  since: 1\n"
            "  call: local\n  why: w\n"
        )["client/exports/demo.cc"]
        self.assertIn("call_.finish(manual_cuB(a, {}, e, {}))", entry)

    def test_via_with_a_made_parameter(self):
        entry = self.cpp(
            "# x\n- fn: CUresult cuA(int a, const size_t *p, CUevent e)\n  since: 1\n"
            "  call: local\n  why: w\n  via: {cuB: some_params}\n"
            "- fn: CUresult cuB(int a, CUstream s, CUgraphNodeParams *n)\n  since: 1\n"
            "  call: local\n  why: w\n"
        )["client/exports/demo.cc"]
        call = "manual_cuB(a, {}, address_of(some_params(*p, e)))"
        self.assertIn(f"finish(p == nullptr ? CUDA_ERROR_INVALID_VALUE : {call})", entry)

    def test_bulk_in_generated_dispatch(self):
        text = (
            "# x\n- fn: CUresult cuA(const void *p, size_t n)\n  since: 1\n  call: async\n"
            "  args: {p: {in: bytes, len: n, bulk: true}}\n"
        )
        self.refused(text, "need 'server: manual'")

    def test_bulk_places(self):
        text = (
            "# x\n- fn: CUresult cuA(void *p, size_t n)\n  since: 1\n  call: sync\n"
            "  server: manual\n  why: w\n  args: {p: {%s: bytes, len: n, bulk: %s}}\n"
        )
        self.refused(text % ("in", "somewhere"), "is none of true, pinned, named")
        self.refused(text % ("out", "pinned"), "bulk: pinned is for inputs")

    def test_arrays_of_handles(self):
        head = "# x\n- fn: CUresult cuA(%s)\n  since: 1\n  call: sync\n  args: {%s}\n"
        self.refused(
            head % ("const CUevent *e, size_t n", "e: {in: array, len: n}"),
            "demo.yml:5",
            "cuA: e: 'CUevent' is not a plain type of types.yml",
        )
        self.refused(
            head % ("const int *e, size_t n", "e: {in: array, len: n, creates: event}"),
            "demo.yml:5",
            "cuA: e: creates: event needs 'out: handle'",
        )

    def test_what_goes_both_ways(self):
        self.refused(
            "# x\n- fn: CUresult cuA(size_t *n)\n  since: 1\n  call: sync\n"
            "  args: {n: {inout: value}}\n",
            "demo.yml:5",
            "cuA: n: inout: 'value' is none of struct",
        )

    def test_several_inputs_beside_the_message(self):
        text = (
            "# x\n- fn: CUresult cuA(%s, size_t n)\n  since: 1\n  call: sync\n"
            "  server: manual\n  why: w\n  args: {%s}\n"
        )
        self.refused(
            text
            % (
                "const void *p, const void *q",
                "p: {in: bytes, len: n, bulk: true}, q: {in: bytes, len: n, bulk: pinned}",
            ),
            "demo.yml:2",
            "cuA: at most one bulk input",
        )
        self.refused(
            text
            % (
                "void *p, void *q",
                "p: {out: bytes, len: n, bulk: true}, q: {out: bytes, len: n, bulk: true}",
            ),
            "demo.yml:2",
            "cuA: at most one bulk input and one bulk output",
        )

    def test_members_of_structs(self):
        text = (
            "# x\n- fn: CUresult cuA(%s *c, int n)\n  since: 1\n  call: sync\n  args: {c: {%s}}\n"
        )
        for base, notes in (
            ("const CUlaunchConfig", "in: array, len: n"),
            ("CUlaunchConfig", "out: struct"),
            ("CUlaunchConfig", "inout: struct"),
            ("const CUlaunchConfig", "in: struct, optional: true"),
        ):
            self.refused(
                text % (base, notes), "demo.yml:5", "cuA: c: 'CUlaunchConfig' has arrays inside"
            )
        path = self.schema / "api" / "types.yml"
        known = path.read_text()
        for rule, message in (
            ("{size: 8, colour: red}", "CUnews: unknown key 'colour'"),
            ("{clear: [h]}", "CUnews: 'size' (bytes) is missing"),
            ("{size: 8, handles: {h: stream}}", "CUnews: unknown key 'handles'"),
            ("{size: 8, arrays: {a: {of: int}}}", "CUnews.a: an array says 'of' and 'len'"),
            ("{size: 8, arrays: {a: {of: CUlaunchConfig, len: n}}}", "is no plain type"),
            ("{size: 8, arrays: {a: {of: CUnothing, len: n}}}", "is no plain type"),
        ):
            path.write_text(known.replace("structs:\n", f"structs:\n  CUnews: {rule}\n"))
            self.refused("# x\n[]\n", "types.yml:", message)

    def test_kind_without_rule(self):
        """A kind of object that does not say all of its rule does not build."""
        path = self.schema / "api" / "types.yml"
        known = path.read_text()
        rule = {
            "is": "kNews",
            "number": "31",
            "record": "Object",
            "lives_with": "session",
            "parents": "[]",
            "server": "[]",
            "client": "[]",
        }

        def add(**changed):
            said = {key: value for key, value in {**rule, **changed}.items() if value}
            line = "  news: {" + ", ".join(f"{k}: {v}" for k, v in said.items()) + "}\n"
            path.write_text(known.replace("kinds:\n", "kinds:\n" + line))

        add()
        self.describe("# x\n[]\n")
        for key in rule:
            add(**{key: ""})
            self.refused("# x\n[]\n", "types.yml:", "kind 'news'", f"'{key}' is missing")
        for wrong, message in (
            ({"number": "32"}, "a number from 1 to 31"),
            ({"number": "1"}, "1 belongs to"),
            ({"is": "kEvent"}, "kEvent belongs to"),
            ({"lives_with": "ever"}, "lives with its session or its context"),
            ({"parents": "[node]"}, "unknown parent 'node'"),
            ({"server": "memory"}, "'server' is a list"),
            ({"client": "memory"}, "'client' is a list"),
            ({"client": "[a-b]"}, "'client' holds names of C++"),
            ({"colour": "red"}, "unknown key 'colour'"),
            ({"client_before": "[memory]"}, "unknown key 'client_before'"),
        ):
            add(**wrong)
            self.refused("# x\n[]\n", "types.yml:", message)
        path.write_text(known.replace("kinds:\n", "kinds:\n  news: kNews\n"))
        self.refused("# x\n[]\n", "types.yml:", "kind 'news' has no rule")
        path.write_text(known.replace("client_before: [", "before: ["))
        self.refused("# x\n[]\n", "types.yml:", "kind 'context'", "'client_before' is missing")

    def test_registry(self):
        text = "# x\n- fn: CUresult cuA(int a)\n  since: 1\n  call: sync\n"
        for registry, message in (
            ("cuA: 63\n", "registry.yml:1: cuA: opcode '63'"),
            ("cuA: 64\ncuB: 64\n", "registry.yml:2: cuB: opcode 64 already belongs to cuA"),
            ("cuB: 70\ncuA: 64\n", "registry.yml:2: cuA: opcode 64 is out of order"),
        ):
            (self.schema / "api" / "registry.yml").write_text(registry)
            with self.assertRaisesRegex(Exception, message.replace("'", ".")):
                self.cpp(text)


if __name__ == "__main__":
    unittest.main()

"""Do the tests catch these faults? Each is planted alone in a worktree beside this tree, what it touches is built there, and
the tests that should catch it have to fail; without a fault they have to pass.

usage: plant.py [NAME ...]
       plant.py --check

Names of faults, all of them when none is given; trainer, operator: all of one of them. The compiler's cache makes a build
of the rest quick; all of them take ten minutes of two cores. Exit code 1 when a fault was not caught, or a test fails
without any. --check builds nothing: it says whether each fault's lines still stand in the sources, as `make verify` asks.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
OPTIONS = ("tests/integration/test_options.py", "trainyard", "slow_copy")
SIMULATION, SEEDS = ("operator_sim_test",), "1:400"


@dataclasses.dataclass(frozen=True)
class Fault:
    """`old` stands once in `file`, and what `more` has of both so too. `test` is what catches it: a program's name and its
    filter, or a Python file and its -k."""

    name: str
    file: str
    old: str
    new: str
    test: tuple
    only: str
    more: tuple = ()

    @property
    def edits(self):
        return ((self.file, self.old, self.new), *self.more)


def restored(name, old, new=""):
    """The state that one of the evaluations' decisions goes on with after a resume."""
    return Fault(f"{name}-not-restored", "trainer/train/train_state.cc", old, new, OPTIONS, "test_what_evaluations_decided_survives_interruptions")


TRAINER = (
    Fault("no-wait-for-the-copy", "trainer/train/step.cc", "    writer->WaitCopied();\n", "", OPTIONS,
          "test_the_optimizer_waits_for_the_checkpoints_copy"),
    # The place among all samples that were ever trained has the step in it, too.
    Fault("step-left-out-of-the-key", "trainer/train/step.cc",
          "static_cast<uint64_t>(step),\n                                   static_cast<uint64_t>(step * plan_.global_batch + place)",
          "uint64_t{0}, static_cast<uint64_t>(place)", ("train_test",), "Step.AKeyIsThatOfItsStepAndItsPlaceInTheGlobalBatch"),
    Fault("place-left-out-of-the-key", "trainer/train/step.cc", "static_cast<uint64_t>(step * plan_.global_batch + place)",
          "static_cast<uint64_t>(step * plan_.global_batch + 0 * place)", ("train_test",), "Step.AKeyIsThatOfItsStepAndItsPlaceInTheGlobalBatch"),
    Fault("layer-left-out-of-the-key", "trainer/model/pass.h", "HashKey(key_, place.index)", "HashKey(key_, 0 * place.index)", ("model_test",),
          "Layers.TwoPlacesDrawDifferently"),
    Fault("scratch-made-static", "trainer/kernels/attention_impl.h", "thread_local HeadScratch scratch", "static HeadScratch scratch", ("model_test",),
          "Threads.Attention"),
    restored("plateau", '  state.plateau = {FromExact(plateau, "multiplier"), FromExact(plateau, "best"), Count(plateau, "bad")};\n',
             "  static_cast<void>(plateau);\n"),
    restored("early-stop", '  state.early_stop = {FromExact(early_stop, "best"), Count(early_stop, "bad")};\n', "  static_cast<void>(early_stop);\n"),
    restored("best", '  state.best = FromExact(json, "best");\n'),
    Fault("no-fsync-of-a-file", "trainer/base/file.cc", '  if (fsync(fd_) != 0) Fail("sync", path_, errno);\n', "", ("power_loss_test",), "PowerLossTest.*"),
    Fault("no-fsync-of-a-folder", "trainer/base/file.cc", "const int result = fsync(fd);", "const int result = 0;", ("power_loss_test",), "PowerLossTest.*"),
    # Of the engine: what stages, offload and averages have to get right.
    Fault("bucket-overwritten-in-flight", "trainer/parallel/reduce_every.cc", "opened_ < retired_ + kSlots", "opened_ <= sent_", ("parallel_test",),
          "Zero.GradientsThatAreSharedOutMakeTheSameBitsAmongThemselves"),
    Fault("norm-before-the-last-bucket", "trainer/parallel/reduce_last.cc", "while (retired_ < buckets_.size())", "while (retired_ + 1 < buckets_.size())",
          ("parallel_test",), "Zero.GradientsSentInBfloat16MakeTheSameBitsInEveryStage"),
    Fault("shard-off-by-a-block", "trainer/parallel/flat_layout.cc", "{bucket.begin + shard * rank, bucket.begin + shard * (rank + 1)}",
          "{bucket.begin + shard * rank + (rank > 0 ? kBlock : 0), bucket.begin + shard * (rank + 1) + (rank + 1 < world_ ? kBlock : 0)}", ("parallel_test",),
          "Zero.EveryStageMakesTheSameBits"),
    Fault("unit-released-before-its-backward", "trainer/parallel/gathered_units.cc", "  Enter();\n}\n\nvoid GatheredUnits::Issue",
          "  Enter();\n  if (!schedule_->at(place).is_gather) state_.units()->Unbind(schedule_->at(place).unit());\n}\n\nvoid GatheredUnits::Issue",
          ("parallel_test",), "Zero.EveryStageMakesTheSameBits"),
    Fault("tile-skipped", "trainer/parallel/offloaded_update.cc", "    optimizer.Step(HostMath()", "    if (k != 1) optimizer.Step(HostMath()", ("parallel_test",),
          "Zero.AnOffloadedOptimizerChangesNoBit"),
    Fault("average-of-another-range", "trainer/parallel/flat_state.cc", "floats(MomentsOf(average, piece))", "floats(average)", ("parallel_test",),
          "Zero.EveryStageMakesTheSameBits"),
)


def simulated(name, file, old, new="", *more):
    """What the operator's simulation has to find."""
    return Fault(name, f"operator/{file}", old, new, SIMULATION, "*EverySeedKeepsTheInvariants*", tuple((f"operator/{other}", *edit) for other, *edit in more))


CONFIRM = ("reconcile/apply.cc", "  if (IsConfirmed(job, plan)) return Status::Ok();\n", "  return NoteConfirmed(job, plan.status.attempt, clock_.Steady()), Status::Ok();\n")
CONFIRM_STALE = ("reconcile/confirm.cc", "  if (!ahead(observed.stale) && !ahead(observed.spent)) return Status::Ok();\n", "  return (void)ahead, Status::Ok();\n")
CONFIRM_MISSING = ("reconcile/confirm.cc", "  if (observed.missing.empty()) return Status::Ok();\n", "  return Status::Ok();\n")
OPERATOR = (
    simulated("stale-cache", "reconcile/reconciler.cc", "  if (own_writes_.IsAhead(key, record->job.resource_version, caches_.job_rewinds())) return {Status::Ok(), 1.0};\n", "", CONFIRM, CONFIRM_STALE, CONFIRM_MISSING),
    simulated("attempt-not-confirmed", *CONFIRM),
    simulated("not-confirmed-in-a-batch", "reconcile/apply.cc", "const bool confirmed = IsConfirmed(job, plan);", "const bool confirmed = true;",
              ("reconcile/apply.cc", "    status = ConfirmAttempt(job, plan);  // asks again when the last answer is old\n", "")),
    simulated("later-pods-are-leftovers", *CONFIRM_STALE),
    simulated("not-cached-is-vanished", *CONFIRM_MISSING),
    simulated("deleting-ignored", "reconcile/pod_record.cc", 'record.deleting = !Text(metadata, "deletionTimestamp").empty();', "record.deleting = false;"),
    simulated("restart-not-idempotent", "reconcile/observe.cc", "pod->attempt == status.attempt", "pod->attempt <= status.attempt"),
    simulated("owner-not-looked-at", "reconcile/observe.cc", "if (pod->owner_uid != record.job.uid) {", "if (false) {"),
    simulated("earlier-not-awaited", "reconcile/start.cc", "  if (AwaitEarlier(observed, plan, now)) return plan;\n"),
    simulated("no-resource-version", "reconcile/reconciler.cc", '{{"metadata", {{"resourceVersion", job.resource_version}}}, {"status", patch}}', '{{"status", patch}}'),
    # The simulation does not find it in 3,000 seeds: whatever is under way is looked at again after some seconds anyway.
    Fault("lost-wake-up", "operator/kube/work_queue.cc", "  const auto [entry, added] = dirty_.try_emplace(key, wait);\n",
          "  if (processing_.contains(key)) return false;\n  const auto [entry, added] = dirty_.try_emplace(key, wait);\n", ("operator_kube_test",), "WorkQueueTest.AddWhileProcessing"),
)
GROUPS = {"trainer": TRAINER, "operator": OPERATOR}
FAULTS = TRAINER + OPERATOR


def run(*command, tree, **options):
    return subprocess.run(command, cwd=tree, text=True, **options)


def build(tree, targets):
    built = run("cmake", "--build", "--preset", "release", "--target", *targets, tree=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if built.returncode != 0:
        sys.exit(f"it does not compile:\n{built.stdout[-4000:]}")


def passes(tree, fault):
    """Whether the test is content with what is built in `tree`, and what it says of itself, if anything."""
    name, *needs = fault.test
    if not name.endswith(".py"):
        build(tree, [name])
        environment = os.environ | {"TRAINYARD_SIM_SEEDS": SEEDS}
        try:
            result = run(f"build/release/bin/{name}", f"--gtest_filter={fault.only}", tree=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
        except subprocess.TimeoutExpired:
            return False, ""
        seeds = sorted({int(seed) for seed in re.findall(r"seed (\d+) \(again", result.stdout)})
        return result.returncode == 0, f", seeds {', '.join(map(str, seeds))}" if seeds else ""
    build(tree, needs)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRAINYARD_")}
    environment["TRAINYARD_SLOW_COPY"] = str(tree / "build/release/lib/libslow_copy.so")
    result = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name, "-k", fault.only, tree=tree, env=environment,
                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900)
    if result.returncode not in (0, 1):  # 1 is a test that failed; others mean that none ran
        sys.exit(f"pytest ended with {result.returncode}:\n{result.stdout[-4000:]}")
    return result.returncode == 0, ""


def edited(tree, fault):
    """What the fault's files say without it, and with it."""
    before = {file: (tree / file).read_text() for file, _, _ in fault.edits}
    after = dict(before)
    for file, old, new in fault.edits:
        if before[file].count(old) != 1:
            sys.exit(f"{fault.name}: {file} has its line {before[file].count(old)} times, not once")
        after[file] = after[file].replace(old, new)
    return before, after


@contextlib.contextmanager
def planted(tree, fault):
    before, after = edited(tree, fault)
    for file, text in after.items():
        (tree / file).write_text(text)
    try:
        yield
    finally:
        for file, text in before.items():
            (tree / file).write_text(text)


@contextlib.contextmanager
def worktree():
    """HEAD, in a folder beside this one: at the same depth, so that the compiler's cache knows its files."""
    tree = ROOT.with_name(ROOT.name + "-planted")
    subprocess.run(["git", "worktree", "add", "--detach", str(tree)], cwd=ROOT, check=True, capture_output=True)
    try:
        subprocess.run(["cmake", "--preset", "release"], cwd=tree, check=True, capture_output=True)
        yield tree
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True, capture_output=True)


def main():
    if sys.argv[1:] == ["--check"]:
        for fault in FAULTS:
            edited(ROOT, fault)
        return 0
    names = {fault.name for fault in FAULTS} | set(GROUPS)
    if unknown := [name for name in sys.argv[1:] if name not in names]:
        sys.exit(f"{unknown[0]}: the faults are {', '.join(sorted(names))}")
    wanted = set(sys.argv[1:]) or set(GROUPS)
    chosen = [fault for group, faults in GROUPS.items() for fault in faults if {group, fault.name} & wanted]
    bad = 0
    with worktree() as tree:
        for test, only in dict.fromkeys((fault.test, fault.only) for fault in chosen):
            content, _ = passes(tree, Fault("none", "", "", "", test, only))
            bad += not content
            print(f"{'passes' if content else 'FAILS'} without a fault: {test[0]} {only}", flush=True)
        for fault in chosen:
            with planted(tree, fault):
                content, said = passes(tree, fault)
            bad += content
            print(f"{'NOT CAUGHT' if content else 'caught'}: {fault.name}, by {fault.test[0]} {fault.only}{said}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

#include "trainer/train/resume.h"

#include <sys/stat.h>

#include <algorithm>
#include <optional>

#include "common/json.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/remove_folder.h"
#include "trainer/base/stop_signal.h"
#include "trainer/base/text.h"
#include "trainer/base/utf8.h"
#include "trainer/checkpoint/retention.h"
#include "trainer/comm/signs_of_life.h"
#include "trainer/task/tasks.h"
#include "trainer/train/consequences.h"
#include "trainer/train/places.h"
#include "trainer/train/plan.h"
#include "trainer/train/run_directory.h"
#include "trainer/train/saved_state.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

// Rank 0 asks all ranks for the same thing, one thing after the other, and gets their answers. Who
// waits for whom is heard of while it reads.
class Rounds {
 public:
  explicit Rounds(Session& session)
      : rank_(session.world.rank),
        world_(session.world.size),
        store_(std::make_shared<PrefixStore>(session.store, "resume/")),
        signs_(store_, rank_, StopRequested, session.life) {}

  int rank() const { return rank_; }
  int world() const { return world_; }
  Tick tick() {
    return [this] { signs_.Beat(); };
  }

  // Rank 0: everyone does `what`; `mine` is rank 0's own part. Answers in rank order.
  std::vector<Json> Ask(const Json& what, const std::function<Json()>& mine) {
    Say(what);
    std::vector<Json> answers = {mine()};
    for (int rank = 1; rank < world_; ++rank) {
      answers.push_back(
          Json::parse(signs_.Wait(Answer(rank), rank, Format("rank %d to look at the checkpoints", rank))));
    }
    return answers;
  }
  void Say(const Json& what) {
    store_->Set(std::to_string(round_++), what.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  // The others: what rank 0 asks next.
  Json Next() { return Json::parse(signs_.Wait(std::to_string(round_++), 0, "rank 0 to choose a checkpoint")); }
  void Reply(const Json& answer) {
    store_->Set(Answer(rank_), answer.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

 private:
  std::string Answer(int rank) const { return Format("%d/%d", round_ - 1, rank); }

  const int rank_, world_;
  std::shared_ptr<Store> store_;
  SignsOfLife signs_;
  int round_ = 0;  // questions so far
};

// What `look` finds wrong, for rank 0: nothing (""), damage (a text), or why it could not look (an object).
Json ProblemOf(const std::function<void()>& look) {
  try {
    look();
    return "";
  } catch (const DamagedError& error) {
    return error.what();
  } catch (const StorageError& error) {
    return {{"unseen", error.what()}};
  }
}

// This rank's part of the files; what ProblemOf says of it.
Json VerifyPart(OpenCheckpoint& checkpoint, Rounds& rounds) {
  std::vector<std::string> mine;
  const std::vector<std::string> names = checkpoint.FileNames();
  for (size_t i = 0; i < names.size(); ++i) {
    if (static_cast<int>(i) % rounds.world() == rounds.rank()) mine.push_back(names[i]);
  }
  return ProblemOf([&] { VerifyFiles(checkpoint, mine, rounds.tick()); });
}

// Whether this rank sees what rank 0 has made, or, as ProblemOf says it, why it could not look.
Json Look(const fs::path& file) {
  Json sees;
  const Json problem = ProblemOf([&] { sees = fs::exists(LookAt(file)); });
  return sees.is_null() ? problem : sees;
}

// Of ranks' answers. What one of them could not look at may be whole, whatever another has found.
void RequireNoProblem(const std::vector<Json>& answers) {
  for (const Json& answer : answers) {
    if (answer.is_object()) throw StorageError(answer["unseen"].get<std::string>());
  }
  for (const Json& answer : answers) {
    if (answer.is_string() && answer != "") throw DamagedError(answer.get<std::string>());
  }
}

// Of one that is not of another identity. Throws ConfigError when this configuration has not the stage that it is of:
// how many there are may follow from fields that are no part of the identity (mace_survival: train.epochs).
void RequireGoodState(const fs::path& checkpoint, const SavedState& saved, const Config& config) {
  const int64_t stage = saved.train.stage, stages = std::ssize(StagesOf(config));
  if (stage >= stages)
    throw ConfigError(
        Format("train.epochs, train.steps: the checkpoint %s is of the run's stage %lld, and with these "
               "the run has %lld; give what it had, or another run.dir",
               checkpoint.c_str(), static_cast<long long>(stage) + 1, static_cast<long long>(stages)));
}

// Returns the warnings.
std::vector<std::string> RequireSame(const fs::path& checkpoint, const SavedState& saved, const Config& config,
                                     const std::string& fingerprint) {
  std::vector<std::string> warnings = RequireSameIdentity("checkpoint " + checkpoint.string(), saved.config.dump(),
                                                          saved.data_fingerprint, config, fingerprint);
  if (config.batch.global && *config.batch.global != saved.global_batch) {
    throw ConfigError(Format("batch.global: the checkpoint %s was made with %lld, here %lld", checkpoint.c_str(),
                             static_cast<long long>(saved.global_batch), static_cast<long long>(*config.batch.global)));
  }
  return warnings;
}

// When and how large it was committed, from its files: a manifest does not say.
CommittedCheckpoint Committed(const OpenCheckpoint& checkpoint) {
  CommittedCheckpoint committed{.step = checkpoint.manifest.step, .bytes = 0, .time = 0, .seconds = {}};
  struct stat manifest {};
  if (stat((checkpoint.path / "manifest.json").c_str(), &manifest) == 0) {
    committed.bytes = static_cast<uint64_t>(manifest.st_size);
    committed.time = manifest.st_mtime;
  }
  for (const auto& [name, file] : checkpoint.manifest.files) committed.bytes += file.bytes;
  return committed;
}

// Rank 0's side.
class Chooser {
 public:
  Chooser(const Config& config, const Session& session, const RequirePlan& require_plan, Rounds& rounds)
      : config_(config),
        fingerprint_(session.fingerprint),
        directory_(config.checkpoint.dir),
        writer_{session.job_uid, session.attempt},
        require_plan_(require_plan),
        rounds_(rounds) {}

  Resume Run() {
    const std::string& resume = config_.checkpoint.resume;
    const bool said = !resume.empty() && resume != "auto",
               holds = said && !Fence::Read(directory_).HasStarted(writer_.job_uid);
    RequireKnownDirectory(said);
    RequireBelongs(holds);
    const bool again = Fence::Read(directory_).HasStarted(writer_.job_uid);
    Fence::Take(directory_, writer_, StopRequested);
    RecordOwner(config_, {writer_.job_uid, writer_.attempt});
    RemoveUnfinished();
    result_.shared = EveryoneSeesTheDirectory();
    if (!result_.shared && ShapeOf(config_, 1).stage != ZeroStage::kDdp)
      throw ConfigError("checkpoint.dir: " + directory_.string() + " is not the same for every rank, and with " +
                        "parallel.stage " + config_.parallel.stage + " each saves a part: give the job one volume " +
                        "(checkpoint.volume), or choose parallel.stage ddp");
    if (said && !holds) {
      result_.message = "checkpoint.resume: " + resume +
                        " counts for a job's first attempt, and this is a later one; to start afresh, name another "
                        "run.dir and checkpoint.dir\n";
    }
    Choice choice = Choose(holds);
    for (const std::string& line : choice.skipped) result_.message += "skipped " + line + "\n";
    if (choice.found) {
      Describe(std::move(*choice.found), choice.named);
    } else {
      result_.message +=
          again ? "starting from scratch: no attempt before it has saved a checkpoint" : "starting from scratch";
    }
    Fence::Record(directory_, writer_, result_.here ? result_.step : 0,
                  result_.source && !result_.here ? fs::absolute(result_.source->path).string() : "");
    return std::move(result_);
  }

 private:
  // A job that does not belong here, or that its configuration keeps from going on, must not end the one that does:
  // this comes before the fence is taken.
  void RequireBelongs(bool holds) {
    const std::string& resume = config_.checkpoint.resume;
    if (holds && resume != "never") {
      const fs::path named = CheckpointsAt("checkpoint.resume", resume);
      if (ListSteps(named).empty()) return RequireFits(named, SavedStateOf(OpenCheckpoint::Open(named)));
      RequireNewestFits(named);
    } else if (holds || !RequireNewestFits(directory_)) {
      require_plan_({});
    }
  }
  // Returns whether there is something to go on from, good or bad.
  bool RequireNewestFits(const fs::path& directory) {
    const Fence fence = Fence::Read(directory);
    bool any = false;
    for (int64_t step : ListSteps(directory)) {
      const fs::path path = directory / StepName(step);
      std::optional<SavedState> saved;
      try {
        const OpenCheckpoint checkpoint = OpenCheckpoint::Open(path);
        const Standing standing = fence.Of(checkpoint.manifest.writer, step);
        if (standing == Standing::kReadable) saved = SavedStateOf(checkpoint);
        any = any || standing == Standing::kUnlisted;
      } catch (const StorageError&) {  // The choice says so.
        any = true;
      }
      if (!saved) continue;
      RequireFits(path, *saved);
      return true;
    }
    const Fence::Owner* start = fence.LastStarted();
    if (!start || (start->source.empty() && *start->resumed_step == 0)) return any;
    std::optional<SavedState> saved;
    try {
      if (!start->source.empty()) saved = SavedStateOf(OpenCheckpoint::Open(start->source));
    } catch (const StorageError&) {  // as above
    }
    if (saved) RequireFits(start->source, *saved);
    return true;
  }
  void RequireFits(const fs::path& checkpoint, const SavedState& saved) {
    RequireSame(checkpoint, saved, config_, fingerprint_);
    RequireGoodState(checkpoint, saved, config_);
    require_plan_(saved);
  }

  // A run that has begun left its fence in its checkpoint directory: an empty one is a volume that is not there. One
  // that has committed a step left `latest`: without a step somebody has removed them. Another one was named on
  // purpose, and so was what checkpoint.resume says now and did not when the run began.
  void RequireKnownDirectory(bool said) {
    if (!HasBegun(config_) || !ListSteps(directory_).empty()) return;
    const bool empty = Fence::Read(directory_).owners.empty();
    if (!empty && !fs::exists(LookAt(directory_ / "latest"))) return;
    const Json saved = ParseJson(ReadFile(IdentityFile(config_))).at("config");
    const std::string named = saved.value("/checkpoint/dir"_json_pointer, "");
    // Also of a run directory that was copied or renamed with its checkpoints in it.
    const bool moved = fs::path(named).lexically_relative(saved.value("/run/dir"_json_pointer, "")) ==
                       fs::path(config_.checkpoint.dir).lexically_relative(config_.run.dir);
    if (named != config_.checkpoint.dir && !moved) return;
    if (said && saved.value("/checkpoint/resume"_json_pointer, "") != config_.checkpoint.resume) return;
    throw StorageError(
        "checkpoint.dir: " + directory_.string() + (empty ? " is empty" : " holds no step") + ", but the run in " +
        config_.run.dir +
        (empty ? " has begun: is its volume there?" : " has saved steps there, as `latest` says: were they removed?") +
        " To start from scratch all the same, name another checkpoint.dir" +
        (said ? "" : ", or set checkpoint.resume: never"));
  }

  // What an attempt that is over, or fenced off by now, had not finished. Large files take a network file system a
  // while each.
  void RemoveUnfinished() {
    const Tick tick = rounds_.tick();
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(directory_, error)) {
      const std::string name = entry.path().filename();
      const bool step = name.starts_with("step-") && name.find(".tmp-") != std::string::npos;
      if (!step && !name.starts_with(".nonce-")) continue;
      RemoveFolder(entry.path(), tick);
    }
  }

  bool EveryoneSeesTheDirectory() {
    if (rounds_.world() == 1) return true;
    const std::string nonce = ".nonce-" + TagOf(writer_);
    WriteFileAtomic(directory_ / nonce, "\n");
    const std::vector<Json> answers = rounds_.Ask({{"look", nonce}}, [] { return true; });
    std::error_code ignored;
    fs::remove(directory_ / nonce, ignored);
    RequireNoProblem(answers);
    return std::all_of(answers.begin(), answers.end(), [](const Json& sees) { return sees == true; });
  }

  // Each rank looks for a step in its own checkpoint.dir, which may be another path to the same directory.
  void VerifyTogether(OpenCheckpoint& checkpoint) {
    RequireGoodState(checkpoint.path, SavedStateOf(checkpoint), config_);
    if (!result_.shared) return VerifyFiles(checkpoint, checkpoint.FileNames(), rounds_.tick());
    const bool here = checkpoint.path == directory_ / checkpoint.path.filename();
    const Json what =
        here ? Json{{"verify", checkpoint.path.filename().string()}} : Json{{"verify_named", checkpoint.path.string()}};
    RequireNoProblem(rounds_.Ask(what, [&] { return VerifyPart(checkpoint, rounds_); }));
  }

  Choice Choose(bool holds) {
    auto verify = [this](OpenCheckpoint& checkpoint) { VerifyTogether(checkpoint); };
    if (!holds) return ChooseCheckpoint(directory_, verify);
    Choice choice;
    if (config_.checkpoint.resume == "never") return choice;
    choice.found = FindCheckpoint("checkpoint.resume", config_.checkpoint.resume, verify);
    choice.named = true;
    return choice;
  }

  void Describe(OpenCheckpoint found, bool named) {
    const SavedState saved = SavedStateOf(found);
    result_.warnings = RequireSame(found.path, saved, config_, fingerprint_);
    result_.step = found.manifest.step;
    result_.here = !named;
    result_.global_batch = saved.global_batch;
    result_.window = saved.window;
    // Not this attempt's own, which says nothing about init.from while that file is gone.
    result_.fingerprint = saved.data_fingerprint;
    result_.train = saved.train;
    ForgetOtherRules(saved.config, config_, result_.train);
    if (result_.train.lr_world == 0) result_.train.lr_world = saved.bits.value("world", int64_t{0});
    const auto& tensors = found.manifest.tensors;
    const auto has = [&](const char* prefix) {
      const auto first = tensors.lower_bound(prefix);
      return first != tensors.end() && first->first.starts_with(prefix);
    };
    result_.has_best = has("best.");
    result_.has_averages = has("ema.");
    result_.bits = saved.bits;
    result_.message += "resuming from " + found.path.string();
    // A directory that a copied configuration names still, for instance.
    if (found.manifest.writer.job_uid != writer_.job_uid) result_.message += ", saved by another run";
    if (!named) result_.durable = Committed(found);
    result_.source = std::make_shared<OpenCheckpoint>(std::move(found));
  }

  const Config& config_;
  const std::string& fingerprint_;
  const fs::path directory_;
  const Writer writer_;
  const RequirePlan& require_plan_;
  Rounds& rounds_;
  Resume result_;
};

Json ToJson(const Resume& resume) {
  Json durable;
  if (resume.durable) durable = {resume.durable->bytes, resume.durable->time};
  const Json window = resume.window ? Json({resume.window->first, resume.window->second}) : Json();
  return {{"durable", durable},
          {"step", resume.step},
          {"here", resume.here},
          {"shared", resume.shared},
          {"bits", resume.bits},
          {"global_batch", resume.global_batch},
          {"window", window},
          {"train", resume.train.ToJson()},
          {"has_best", resume.has_best},
          {"has_averages", resume.has_averages},
          {"message", resume.message},
          {"warnings", resume.warnings}};
}

Resume Follow(const Json& go, std::shared_ptr<const OpenCheckpoint> source) {
  Resume resume;
  resume.step = go.at("step").get<int64_t>();
  resume.here = go.at("here").get<bool>();
  resume.shared = go.at("shared").get<bool>();
  if (const Json& durable = go.at("durable"); !durable.is_null()) {
    resume.durable = {
        .step = resume.step, .bytes = durable[0].get<uint64_t>(), .time = durable[1].get<int64_t>(), .seconds = {}};
  }
  resume.bits = go.at("bits");
  resume.global_batch = go.at("global_batch").get<int64_t>();
  if (const Json& window = go.at("window"); !window.is_null())
    resume.window = {window[0].get<int64_t>(), window[1].get<int64_t>()};
  resume.train = TrainState::FromJson(go.at("train"));
  resume.has_best = go.at("has_best").get<bool>();
  resume.has_averages = go.at("has_averages").get<bool>();
  resume.message = go.at("message").get<std::string>();
  resume.warnings = go.at("warnings").get<std::vector<std::string>>();
  if (resume.step > 0 && resume.shared) resume.source = std::move(source);
  return resume;
}

Resume Lead(const Config& config, const Session& session, const RequirePlan& require_plan, Rounds& rounds) {
  try {
    Resume resume = Chooser(config, session, require_plan, rounds).Run();
    if (resume.step == 0) resume.fingerprint = session.fingerprint;
    rounds.Say({{"go", ToJson(resume)}});
    return resume;
  } catch (const std::exception& error) {
    try {
      rounds.Say({{"failed", ValidUtf8(error.what())}});
    } catch (const PeerError&) {  // Nobody can be told.
    }
    throw;
  }
}

}  // namespace

Resume TakeOver(const Config& config, Session& session, const RequirePlan& require_plan) {
  Rounds rounds(session);
  if (rounds.rank() == 0) return Lead(config, session, require_plan, rounds);
  std::shared_ptr<OpenCheckpoint> source;
  for (;;) {
    const Json question = rounds.Next();
    if (question.contains("failed"))
      throw PeerError("rank 0 found nothing to go on from: " + question["failed"].get<std::string>());
    if (question.contains("go")) return Follow(question["go"], std::move(source));
    if (question.contains("look")) {
      rounds.Reply(Look(fs::path(config.checkpoint.dir) / question["look"].get<std::string>()));
      continue;
    }
    source.reset();
    const bool named = question.contains("verify_named");
    const fs::path path = named ? fs::path(question["verify_named"].get<std::string>())
                                : fs::path(config.checkpoint.dir) / question["verify"].get<std::string>();
    const Json unopened = ProblemOf([&] { source = std::make_shared<OpenCheckpoint>(OpenCheckpoint::Open(path)); });
    rounds.Reply(source ? VerifyPart(*source, rounds) : unopened);
  }
}

}  // namespace trainyard

#include "trainer/task/algorithm_distillation/histories.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/hash.h"
#include "trainer/base/text.h"
#include "trainer/data/hdf5_file.h"
#include "trainer/data/npy.h"
#include "trainer/task/algorithm_distillation/sources.h"

namespace trainyard::ad {
namespace {

// The arrays of one task, each (transitions, streams[, 2]) as in the original's files.
struct ArrayField {
  const char* name;
  int width;  // values per step
  int limit;  // values lie in [0, limit)
  bool is_bool, needed;
  uint8_t Transition::*members[2];
};
enum FieldIndex : size_t { kStates, kActions, kRewards, kNextStates, kDones, kMarkers, kFieldCount };
constexpr std::array<ArrayField, kFieldCount> kFields = {{
    {"states", 2, kGridSize, false, true, {&Transition::row, &Transition::column}},
    {"actions", 1, kNumActions, false, true, {&Transition::action, nullptr}},
    {"rewards", 1, 2, false, true, {&Transition::reward, nullptr}},
    {"next_states", 2, kGridSize, false, true, {&Transition::next_row, &Transition::next_column}},
    {"dones", 1, 2, true, true, {&Transition::done, nullptr}},
    {"compress_markers", 1, 3, false, false, {&Transition::marker, nullptr}},
}};

IntArray Gather(const Histories& histories, int64_t task, const ArrayField& field) {
  IntArray array;
  array.shape = {histories.length(), histories.streams()};
  if (field.width == 2) array.shape.push_back(2);
  for (int64_t t = 0; t < histories.length(); ++t) {
    for (int64_t s = 0; s < histories.streams(); ++s) {
      const Transition& step = histories.at(task, s)[static_cast<size_t>(t)];
      for (int w = 0; w < field.width; ++w) array.values.push_back(step.*field.members[w]);
    }
  }
  return array;
}

void Scatter(const IntArray& array, const ArrayField& field, const std::string& where, int64_t task,
             Histories& histories) {
  const int64_t streams = histories.streams();
  for (int64_t t = 0; t < histories.length(); ++t) {
    for (int64_t s = 0; s < streams; ++s) {
      Transition& step = histories.at(task, s)[static_cast<size_t>(t)];
      for (int w = 0; w < field.width; ++w) {
        const int64_t index = (t * streams + s) * field.width + w;
        const int32_t value = array.values[static_cast<size_t>(index)];
        if (value < 0 || value >= field.limit) {
          throw DataError(Format("%s: step %lld of stream %lld is %d, outside [0, %d)", where.c_str(),
                                 static_cast<long long>(t), static_cast<long long>(s), value, field.limit));
        }
        step.*field.members[w] = static_cast<uint8_t>(value);
      }
    }
  }
}

void RequireShape(const IntArray& array, const ArrayField& field, const std::string& where, int64_t length,
                  int64_t streams) {
  std::vector<int64_t> expected = {length, streams};
  if (field.width == 2) expected.push_back(2);
  if (array.shape == expected) return;
  auto text = [](const std::vector<int64_t>& shape) {
    std::vector<std::string> dims;
    for (int64_t d : shape) dims.push_back(std::to_string(d));
    return "(" + Join(dims) + ")";
  };
  throw DataError(where + ": shape " + text(array.shape) + ", expected " + text(expected));
}

// How a file or a folder holds the arrays.
struct ArraySource {
  std::function<IntArray(int64_t task, const ArrayField& field)> read;
  std::function<bool(int64_t task, const ArrayField& field)> has;
  std::function<std::string(int64_t task, const ArrayField& field)> name;
  std::function<bool(int64_t task)> has_task;
  uint64_t most = 0;  // transitions of all tasks that there can be
};

std::string TextOf(Cell cell) { return Format("(%d, %d)", cell.row, cell.column); }

// One task's histories, as the environment has it. Immutable.
class TaskCheck {
 public:
  TaskCheck(const ArraySource& source, int64_t task, const DarkRoom& room, const std::string& env)
      : source_(source), task_(task), room_(room), env_(env) {}

  // Histories of another environment, or of its tasks in another order, would be learnt without a word, and the
  // held-out goals be among them. Returns how many reset states were replaced.
  int64_t RequireSteps(int64_t stream, std::span<Transition> history) const {
    int64_t replaced = 0;
    for (size_t t = 0; t < history.size(); ++t) {
      Transition& step = history[t];
      const Cell before{step.row, step.column}, after = room_.Step(before, step.action);
      Cell next{step.next_row, step.next_column};
      if (step.done && next != after && next == room_.start) {
        ++replaced;
        next = after;
        step.next_row = static_cast<uint8_t>(after.row);
        step.next_column = static_cast<uint8_t>(after.column);
      }
      if (next != after)
        Fail(kNextStates, t, stream, TextOf(next), TextOf(after),
             Format("where action %d leads from %s", step.action, TextOf(before).c_str()));
      const auto reward = static_cast<int>(room_.Reward(after));
      if (step.reward != reward)
        Fail(kRewards, t, stream, std::to_string(step.reward), std::to_string(reward),
             "in " + TextOf(after) + " where the goal is " + TextOf(room_.goal));
    }
    return replaced;
  }

  // Of whole regions: nobody is trained on a part of one.
  void RequireMarkers(int64_t stream, std::span<const Transition> history) const {
    for (size_t t = 0; t < history.size() / kRolloutSteps * kRolloutSteps; ++t) {
      const int marker = history[t].marker, expected = MarkerAt(static_cast<int64_t>(t));
      if (marker == expected) continue;
      throw DataError(Where(kMarkers, t, stream) +
                      Format(" is %d, expected %d: task.mode compressed is of regions of %d steps, of which the first "
                             "has 1, the last 2 and every other 0",
                             marker, expected, kRolloutSteps));
    }
  }

 private:
  std::string Where(FieldIndex field, size_t step, int64_t stream) const {
    return source_.name(task_, kFields[field]) +
           Format(": step %zu of stream %lld", step, static_cast<long long>(stream));
  }
  [[noreturn]] void Fail(FieldIndex field, size_t step, int64_t stream, const std::string& found,
                         const std::string& expected, const std::string& why) const {
    throw DataError(Where(field, step, stream) + " is " + found + ", expected " + expected + ", " + why +
                    Format(" in task %lld of task.env %s; are they histories of another environment, or its tasks in "
                           "another order?",
                           static_cast<long long>(task_), env_.c_str()));
  }

  const ArraySource& source_;
  int64_t task_;
  const DarkRoom& room_;
  const std::string& env_;
};

Histories Read(const ArraySource& source, std::span<const DarkRoom> rooms, const Options& options) {
  const int64_t num_tasks = std::ssize(rooms);
  const IntArray first = source.read(0, kFields[kActions]);
  if (first.shape.size() != 2 || first.shape[0] < 2 || first.shape[1] < 1) {
    throw DataError(source.name(0, kFields[kActions]) + ": expected the shape (transitions, streams)");
  }
  const int64_t length = first.shape[0], streams = first.shape[1];
  if (static_cast<uint64_t>(length) > source.most / static_cast<uint64_t>(streams) / static_cast<uint64_t>(num_tasks))
    throw DataError(source.name(0, kFields[kActions]) +
                    Format(": %lld transitions of %lld streams for each of %lld tasks are more than "
                           "the file holds",
                           static_cast<long long>(length), static_cast<long long>(streams),
                           static_cast<long long>(num_tasks)));
  if (source.has_task(num_tasks))
    throw DataError(source.name(num_tasks, kFields[kActions]) +
                    Format(": task.env %s has the tasks 0 to %lld alone; are they histories of another environment?",
                           options.env.c_str(), static_cast<long long>(num_tasks - 1)));
  Histories histories(num_tasks, streams, std::min(length, options.max_transitions));
  int64_t replaced = 0;
  for (int64_t task = 0; task < num_tasks; ++task) {
    bool marked = false;
    for (const ArrayField& field : kFields) {
      if (!field.needed && !source.has(task, field)) continue;
      const IntArray array = source.read(task, field);
      RequireShape(array, field, source.name(task, field), length, streams);
      Scatter(array, field, source.name(task, field), task, histories);
      marked = marked || &field == &kFields[kMarkers];
    }
    const TaskCheck check(source, task, rooms[static_cast<size_t>(task)], options.env);
    for (int64_t stream = 0; stream < streams; ++stream) {
      replaced += check.RequireSteps(stream, histories.at(task, stream));
      if (marked && options.mode == "compressed") check.RequireMarkers(stream, histories.at(task, stream));
    }
  }
  if (replaced > 0)
    std::fprintf(stderr,
                 "note: %s and the other tasks': behind %lld episodes stands the state that the next one starts in; "
                 "where the last action led is taken instead\n",
                 source.name(0, kFields[kNextStates]).c_str(), static_cast<long long>(replaced));
  return histories;
}

std::string FolderName(int64_t task) { return Format("env-%03lld", static_cast<long long>(task)); }

// The one .hdf5 file of a folder; empty when there is none.
fs::path OnlyHdf5In(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() == ".hdf5") files.push_back(entry.path());
  }
  if (files.size() > 1)
    throw DataError(directory.string() + ": holds " + std::to_string(files.size()) +
                    " .hdf5 files; name one of them in data.path");
  return files.empty() ? fs::path() : files[0];
}

}  // namespace

std::string Histories::Fingerprint() const { return HexDigest(Xxh3Of(std::span<const Transition>(data_))); }

void WriteHdf5(const Histories& histories, const fs::path& file) {
  Replacement(file, [&](const fs::path& temporary) {
    Hdf5File out = Hdf5File::Create(temporary);
    for (int64_t task = 0; task < histories.tasks(); ++task) {
      for (const ArrayField& field : kFields) {
        const IntArray array = Gather(histories, task, field);
        out.Write(std::to_string(task) + "/" + field.name, array.shape, array.values, field.is_bool);
      }
    }
    out.Close();
  }).Commit();
}

void WriteNpyFolders(const Histories& histories, const fs::path& directory) {
  for (int64_t task = 0; task < histories.tasks(); ++task) {
    const fs::path folder = directory / FolderName(task), temporary = folder.string() + ".tmp";
    fs::create_directories(temporary);
    for (const ArrayField& field : kFields) {
      const IntArray array = Gather(histories, task, field);
      WriteNpy(temporary / (std::string(field.name) + ".npy"), array.shape, array.values, field.is_bool);
    }
    fs::remove_all(folder);
    fs::rename(temporary, folder);
  }
}

Histories ReadHistories(const fs::path& path, std::span<const DarkRoom> rooms, const Options& options) {
  if (!fs::exists(path)) throw DataError("data.path: " + path.string() + ": no such file or folder");
  const fs::path hdf5 = fs::is_directory(path) ? OnlyHdf5In(path) : path;
  if (!hdf5.empty()) {
    const Hdf5File file = Hdf5File::Open(hdf5);
    auto in_file = [](int64_t task, const ArrayField& field) { return std::to_string(task) + "/" + field.name; };
    // As of one array (Hdf5File::Read): what was never written takes no room in a file, and would in memory.
    constexpr uint64_t kNeverWritten = uint64_t{1} << 24, kBestPacked = 1032;
    return Read(
        {.read = [&](int64_t task, const ArrayField& field) { return file.Read(in_file(task, field)); },
         .has = [&](int64_t task, const ArrayField& field) { return file.Has(in_file(task, field)); },
         .name = [&](int64_t task, const ArrayField& field) { return hdf5.string() + ": " + in_file(task, field); },
         .has_task = [&](int64_t task) { return file.Has(std::to_string(task)); },
         .most = fs::file_size(hdf5) * kBestPacked + kNeverWritten},
        rooms, options);
  }
  if (!fs::exists(path / FolderName(0)))
    throw DataError("data.path: " + path.string() + ": holds neither an .hdf5 file nor " + FolderName(0));
  auto npy = [&](int64_t task, const ArrayField& field) {
    return path / FolderName(task) / (std::string(field.name) + ".npy");
  };
  return Read({.read = [&](int64_t task, const ArrayField& field) { return ReadNpy(npy(task, field)); },
               .has = [&](int64_t task, const ArrayField& field) { return fs::exists(npy(task, field)); },
               .name = [&](int64_t task, const ArrayField& field) { return npy(task, field).string(); },
               .has_task = [&](int64_t task) { return fs::exists(path / FolderName(task)); },
               .most = UINT64_MAX},
              rooms, options);
}

}  // namespace trainyard::ad

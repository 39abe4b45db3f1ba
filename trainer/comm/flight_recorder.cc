#include "trainer/comm/flight_recorder.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "common/json.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

using nlohmann::json;

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

// A collective that some rank has entered and that is not over there.
struct Open {
  std::string group;
  CollectiveRecord record;  // of a nameless one its number is all that is known
};

uint64_t EnteredBy(const Flight& flight, const std::string& group) {
  const auto found = flight.groups.find(group);
  return found == flight.groups.end() ? 0 : found->second.entered;
}

bool Waits(const Flight& flight) {
  return std::ranges::any_of(flight.groups,
                             [](const auto& group) { return group.second.ended < group.second.entered; });
}

const CollectiveRecord* Find(const Flight& flight, const std::string& group, uint64_t number) {
  const auto found = flight.groups.find(group);
  if (found == flight.groups.end()) return nullptr;
  const auto entry = std::ranges::find(found->second.entries, number, &CollectiveRecord::number);
  return entry == found->second.entries.end() ? nullptr : &*entry;
}

// The first collective of a group that is open anywhere.
std::optional<Open> FirstOpen(std::span<const Flight> flights, const std::string& group) {
  std::optional<Open> first;
  for (const Flight& flight : flights) {
    const auto found = flight.groups.find(group);
    if (found == flight.groups.end() || found->second.ended == found->second.entered) continue;
    const uint64_t number = found->second.ended + 1;
    if (first && first->record.number <= number) continue;
    first = Open{group, {.number = number, .name = "collective", .unit = ""}};
  }
  if (!first) return first;
  // Who has run far ahead has forgotten it.
  for (const Flight& flight : flights) {
    const CollectiveRecord* record = Find(flight, group, first->record.number);
    if (record) return Open{group, *record};
  }
  return first;
}

std::string NameOf(const Open& open) {
  std::vector<std::string> in = {open.group};
  if (!open.record.unit.empty()) in.push_back(open.record.unit);
  if (open.record.bytes > 0) in.push_back(HumanBytes(static_cast<double>(open.record.bytes)));
  return Format("%s #%llu (%s)", open.record.name.c_str(), static_cast<unsigned long long>(open.record.number),
                Join(in).c_str());
}

std::string NameOf(int rank, const Flight& flight) {
  return Format("rank %d", rank) + (flight.host.empty() ? "" : " (" + flight.host + ")");
}

std::string DoingOf(const Flight& flight) {
  if (flight.phase.empty()) return "";
  return "; last seen in " + flight.phase + ", for " + HumanSeconds(flight.phase_seconds);
}

// Ranks that made different calls: none of them waits for the other, and none will come.
std::optional<std::string> Mismatch(std::span<const Flight> flights, const Open& open) {
  for (size_t rank = 0; rank < flights.size(); ++rank) {
    const CollectiveRecord* other = Find(flights[rank], open.group, open.record.number);
    if (!other ||
        (other->name == open.record.name && other->unit == open.record.unit && other->bytes == open.record.bytes))
      continue;
    return "the ranks make different collectives: " + NameOf(static_cast<int>(rank), flights[rank]) + " entered " +
           NameOf(Open{open.group, *other}) + " where others entered " + NameOf(open);
  }
  return {};
}

}  // namespace

std::string Flight::ToText() const {
  json groups = json::object();
  for (const auto& [name, group] : this->groups) {
    json entries = json::array();
    for (const CollectiveRecord& entry : group.entries)
      entries.push_back({entry.number, entry.name, entry.unit, entry.bytes});
    groups[name] = {{"entered", group.entered}, {"ended", group.ended}, {"entries", entries}};
  }
  return json{{"groups", groups}, {"host", host}, {"phase", phase}, {"phase_seconds", phase_seconds}}.dump(
      -1, ' ', false, json::error_handler_t::replace);
}

std::optional<Flight> Flight::FromText(const std::string& text) {
  const json parsed = ParseJson(text);
  if (parsed.is_discarded()) return {};
  try {
    Flight flight;
    flight.host = parsed.at("host").get<std::string>();
    flight.phase = parsed.at("phase").get<std::string>();
    flight.phase_seconds = parsed.at("phase_seconds").get<double>();
    for (const auto& [name, group] : parsed.at("groups").items()) {
      Group& into = flight.groups[name];
      into.entered = group.at("entered").get<uint64_t>();
      into.ended = group.at("ended").get<uint64_t>();
      for (const json& entry : group.at("entries"))
        into.entries.push_back({entry.at(0).get<uint64_t>(), entry.at(1).get<std::string>(),
                                entry.at(2).get<std::string>(), entry.at(3).get<int64_t>()});
    }
    return flight;
  } catch (const json::exception&) {
    return {};
  }
}

void FlightRecorder::Enter(const std::string& group, const std::string& name, const std::string& unit, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  Flight::Group& of = flight_.groups[group];
  if (of.entries.size() == kKept) of.entries.erase(of.entries.begin());
  of.entries.push_back({++of.entered, name, unit, bytes});
}

void FlightRecorder::End(const std::string& group) {
  const std::lock_guard lock(mutex_);
  ++flight_.groups[group].ended;
}

void FlightRecorder::Phase(const std::string& phase) {
  const std::lock_guard lock(mutex_);
  flight_.phase = phase;
  phase_since_ = std::chrono::steady_clock::now();
}

Flight FlightRecorder::Now() const {
  static const std::string host = HostName();
  const std::lock_guard lock(mutex_);
  Flight flight = flight_;
  flight.host = host;
  flight.phase_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - phase_since_).count();
  return flight;
}

HangVerdict JudgeHang(std::span<const Flight> flights) {
  std::vector<std::string> groups;
  for (const Flight& flight : flights) {
    for (const auto& [name, group] : flight.groups) {
      if (std::ranges::find(groups, name) == groups.end()) groups.push_back(name);
    }
  }
  std::string whole;  // a collective that everybody has entered
  for (const std::string& group : groups) {
    const std::optional<Open> open = FirstOpen(flights, group);
    if (!open) continue;
    if (const auto mismatch = Mismatch(flights, *open)) return {{}, *mismatch};
    HangVerdict verdict;
    std::vector<std::string> names;
    bool all = true;
    for (size_t rank = 0; rank < flights.size(); ++rank) {
      if (EnteredBy(flights[rank], group) >= open->record.number) continue;
      all = false;
      // Who waits for another collective keeps nobody waiting: who has not come to that one does.
      if (Waits(flights[rank])) continue;
      verdict.culprits.push_back(static_cast<int>(rank));
      names.push_back(NameOf(static_cast<int>(rank), flights[rank]));
    }
    if (all)
      whole =
          "every rank has entered " + NameOf(*open) + " by now: one came late, or the network or a device holds it up";
    if (names.empty()) continue;
    const Flight& first = flights[static_cast<size_t>(verdict.culprits.front())];
    verdict.sentence = Join(names) + " never entered " + NameOf(*open) + (names.size() == 1 ? DoingOf(first) : "");
    return verdict;
  }
  return {{}, whole};
}

}  // namespace trainyard

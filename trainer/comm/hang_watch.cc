#include "trainer/comm/hang_watch.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <vector>

#include "common/json.h"
#include "trainer/base/error.h"

namespace trainyard {
namespace {

using nlohmann::json;

// Ranks look once a second whether they are asked; a crowded machine may delay it.
constexpr std::chrono::seconds kLook{1};

constexpr char kAsked[] = "asked", kJudges[] = "judges", kVerdict[] = "verdict";
std::string FlightKey(int rank) { return "flight/" + std::to_string(rank); }

}  // namespace

struct HangWatch::Shared {
  Shared(std::shared_ptr<Store> s, int r, int n, std::function<void(const std::string&)> f)
      : store(std::move(s)), rank(r), size(n), named(std::move(f)) {}

  void Run() {
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, kLook, [this] { return stopping; })) {
      lock.unlock();
      try {
        Look();
      } catch (const std::exception&) {  // a host that was frozen may come back; nothing else hangs on this
      }
      lock.lock();
    }
  }

  void Look() {
    if (!told) {
      if (!store->Get(kAsked)) return;
      Tell();
    }
    const std::optional<std::string> verdict = store->Get(kVerdict);
    if (!verdict || judged) return;
    judged = true;
    const json parsed = ParseJson(*verdict);
    const auto culprits = parsed.at("culprits").get<std::vector<int>>();
    if (!named || std::ranges::find(culprits, rank) == culprits.end()) return;
    const auto sentence = parsed.at("sentence").get<std::string>();
    const std::lock_guard lock(mutex);  // whose `named` it is may go once the watch has gone
    if (!stopping) named(sentence);
  }

  void Tell() {
    store->Set(FlightKey(rank), recorder.Now().ToText());
    told = true;
  }

  // Those of all ranks; nothing when one does not answer.
  std::optional<std::vector<Flight>> Flights(std::chrono::duration<double> patience) {
    std::vector<Flight> flights;
    const auto until = std::chrono::steady_clock::now() + patience;
    for (int of = 0; of < size; ++of) {
      const auto left = std::chrono::duration<double>(until - std::chrono::steady_clock::now());
      const std::string text =
          store->Wait(FlightKey(of), std::max(left, std::chrono::duration<double>(0.01)), "a flight");
      std::optional<Flight> flight = Flight::FromText(text);
      if (!flight) return {};
      flights.push_back(std::move(*flight));
    }
    return flights;
  }

  void Ask() {
    store->Set(FlightKey(rank), recorder.Now().ToText());
    store->Set(kAsked, "1");
  }

  std::string Explain(std::chrono::duration<double> patience) {
    Ask();
    if (store->Add(kJudges, 1) > 1) {  // another one judges
      const json parsed = ParseJson(store->Wait(kVerdict, 2 * patience, "a verdict"));
      return parsed.at("sentence").get<std::string>();
    }
    HangVerdict verdict;
    try {
      if (const auto flights = Flights(patience)) verdict = JudgeHang(*flights);
    } catch (const PeerError&) {  // one does not answer
    }
    store->Set(kVerdict, json{{"culprits", verdict.culprits}, {"sentence", verdict.sentence}}.dump());
    return verdict.sentence;
  }

  const std::shared_ptr<Store> store;
  const int rank, size;
  const std::function<void(const std::string&)> named;
  FlightRecorder recorder;
  std::mutex mutex;
  std::condition_variable changed;
  bool stopping = false;
  bool told = false, judged = false;  // the thread's
};

HangWatch::HangWatch(std::shared_ptr<Store> store, int rank, int size, std::function<void(const std::string&)> named)
    : shared_(std::make_shared<Shared>(std::move(store), rank, size, std::move(named))),
      thread_([shared = shared_] { shared->Run(); }) {}

HangWatch::~HangWatch() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
    shared_->changed.notify_all();
  }
  thread_.WaitFor(kLook);
}

FlightRecorder& HangWatch::recorder() { return shared_->recorder; }

void HangWatch::Ask() {
  try {
    shared_->Ask();
  } catch (const std::exception&) {  // as in Explain
  }
}

std::string HangWatch::Explain(std::chrono::duration<double> patience) {
  try {
    return shared_->Explain(patience);
  } catch (const std::exception&) {  // the store is gone, or nobody judges: others say that
    return "";
  }
}

}  // namespace trainyard

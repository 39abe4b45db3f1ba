// The data pipeline of volumes without a model, for tests/bench/imaging.py: one request as JSON on stdin, one answer.
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "trainer/data/gzip.h"
#include "trainer/data/loader.h"
#include "trainer/data/nifti.h"
#include "trainer/data/smart_cache.h"
#include "trainer/data/transform.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

struct Request {
  std::vector<std::string> files;
  std::vector<int64_t> size;
  int threads;
  explicit Request(const Json& json)
      : files(json["files"].get<std::vector<std::string>>()),
        size(json["size"].get<std::vector<int64_t>>()),
        threads(json["threads"].get<int>()) {}
  Transforms Prefix() const { return Transforms().Window({-1000, 1000, 0, 1}).Area(size); }
};

// Threads that read, decode and transform files for so many seconds.
Json Rate(const Json& json) {
  const Request request(json);
  const Transforms prefix = request.Prefix();
  const double seconds = json["seconds"].get<double>(), start = SteadySeconds();
  StageTimes times;
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < request.threads; ++i) {
    threads.emplace_back([&] {
      while (SteadySeconds() - start < seconds)
        prefix(ReadNifti(request.files[next++ % request.files.size()], &times).volume, 0, &times);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double took = SteadySeconds() - start, count = static_cast<double>(next);
  return {{"samples_per_second", count / took},
          {"ms_read", 1e3 * times.read / count},
          {"ms_decode", 1e3 * times.decode / count},
          {"ms_transform", 1e3 * times.transform / count}};
}

// Decompression alone, by zlib and by libdeflate, in one thread.
Json Decompress(const Json& json) {
  const Request request(json);
  double zlib = 0, libdeflate = 0, bytes = 0;
  for (const std::string& file : request.files) {
    const std::vector<std::byte> compressed = ReadDataFile(file, uint64_t{1} << 30);
    std::vector<std::byte> whole(MostInflated(compressed.size()) / 100);
    whole.resize(InflateStart(file, compressed, whole));
    const double start = SteadySeconds();
    InflateStart(file, compressed, whole);
    const double middle = SteadySeconds();
    Inflate(file, compressed, whole);
    zlib += middle - start;
    libdeflate += SteadySeconds() - middle;
    bytes += static_cast<double>(whole.size());
  }
  return {{"zlib_mb_per_second", bytes / zlib / 1e6}, {"libdeflate_mb_per_second", bytes / libdeflate / 1e6}};
}

struct Image : Sample {
  Volume volume;
};

class Images : public Dataset {
 public:
  Images(const Request& request, SmartCache& cache) : length_(std::ssize(request.files)), cache_(cache) {}
  int64_t size() const override { return length_; }
  std::string fingerprint(const Tick&) const override { return ""; }
  std::unique_ptr<Sample> Read(const SampleKey& key) const override {
    auto image = std::make_unique<Image>();
    image->volume = augment_(std::move(cache_.Get(key, &times_)[0]), key.key, &times_);
    return image;
  }
  uint64_t Hash(const Sample&) const override { return 0; }

 private:
  const Transforms augment_ = Transforms().RandomFlip(0.5, 0).RandomFlip(0.5, 1).RandomRotate90(0.5, 0, 1);
  int64_t length_;
  SmartCache& cache_;
  mutable StageTimes times_;
};

struct Stacked : Batch {
  std::vector<float> values;
};

std::unique_ptr<Batch> Collate(std::span<const Sample* const> samples) {
  auto batch = std::make_unique<Stacked>();
  for (const Sample* sample : samples) {
    const auto& values = static_cast<const Image&>(*sample).volume.values;
    batch->values.insert(batch->values.end(), values.begin(), values.end());
  }
  return batch;
}

// How long a step of `step_ms` waits for its samples while the window is replaced; without the first epoch, in which
// nothing is kept yet.
Json Wait(const Json& json) {
  const Request request(json);
  const Transforms prefix = request.Prefix();
  const auto length = std::ssize(request.files);
  const int64_t batch = json["batch"].get<int64_t>();
  const SmartCacheOptions options{
      .length = length,
      .window = ResolveWindow(length, json["rate"].get<double>(), json["replace"].get<double>()),
      .seed = 1,
      .folder = json["folder"].get<std::string>()};
  SmartCache cache(
      options,
      [&](int64_t id, StageTimes* times) {
        const auto& file = request.files[static_cast<size_t>(id)];
        return std::vector<Volume>{prefix(ReadNifti(file, times).volume, 0, times)};
      },
      [&](int64_t id) { return StampOf({request.files[static_cast<size_t>(id)]}, prefix.description()); });
  const Images images(request, cache);
  const int64_t per_epoch = options.window.items / batch, steps = json["epochs"].get<int64_t>() * per_epoch;
  Loader loader(images, SampleStream(MakeWindowOrder(length, options.window, 1), 1, EpochEnd::kCarry, batch), Collate,
                {.global_batch = batch, .begin = 0, .end = batch, .micro = batch}, 0, steps,
                {.threads = request.threads, .prefetch = 4});
  std::vector<double> waits;
  SmartCache::Counts first;
  for (int64_t step = 0; step < steps; ++step) {
    if (step == per_epoch) first = cache.counts();
    const double start = SteadySeconds();
    const Share share = loader.Next();  // given up behind the measurement
    if (step >= per_epoch) waits.push_back(1e3 * (SteadySeconds() - start));
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(json["step_ms"].get<double>()));
  }
  std::sort(waits.begin(), waits.end());
  const auto at = [&](double share) {
    return waits[static_cast<size_t>(share * static_cast<double>(waits.size() - 1))];
  };
  const SmartCache::Counts counts = cache.counts();
  const auto hits = static_cast<double>(counts.hits - first.hits),
             misses = static_cast<double>(counts.misses - first.misses);
  return {{"window", options.window.items},
          {"replaced", options.window.replace},
          {"steps", waits.size()},
          {"wait_ms_p50", at(0.5)},
          {"wait_ms_p99", at(0.99)},
          {"wait_ms_max", waits.back()},
          {"hit_rate", hits / (hits + misses)}};
}

}  // namespace
}  // namespace trainyard

int main() {
  const auto request = nlohmann::json::parse(std::cin);
  const auto what = request["what"].get<std::string>();
  const auto answer = what == "rate"         ? trainyard::Rate(request)
                      : what == "decompress" ? trainyard::Decompress(request)
                                             : trainyard::Wait(request);
  std::cout << answer.dump() << std::endl;
}

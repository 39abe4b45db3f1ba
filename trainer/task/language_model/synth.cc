#include "trainer/task/language_model/synth.h"

#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/for_each.h"
#include "trainer/base/progress.h"
#include "trainer/base/text.h"
#include "trainer/task/language_model/corpus.h"
#include "trainer/task/language_model/markov_source.h"

namespace trainyard::lm {
namespace {

struct Size {
  MarkovOptions source;
  int64_t shards, shard_tokens;
};
// The full size has GPT-2's vocabulary.
const std::map<std::string, Size> kSizes = {{"tiny", {{.vocab = 16, .classes = 2, .successors = 4}, 4, 1 << 18}},
                                            {"small", {{.vocab = 256, .classes = 2, .successors = 6}, 16, 1 << 20}},
                                            {"full", {{.vocab = 50257, .classes = 4, .successors = 8}, 64, 1 << 21}}};

std::string ShardName(int64_t index) { return Format("shard-%05lld.tokens", static_cast<long long>(index)); }

// Shards that would become part of the corpus without belonging to it.
void RefuseOtherShards(const fs::path& out, int64_t shards) {
  for (const fs::directory_entry& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename().string();
    bool ours = entry.path().extension() != ".tokens";
    for (int64_t i = 0; i < shards && !ours; ++i) ours = name == ShardName(i);
    if (!ours) throw ConfigError("--out: " + out.string() + " holds " + name + ", which is not of this corpus");
  }
}

class CorpusSynthesis : public Synthesis {
 public:
  void Declare(FieldTable& t) override {
    t.Choice("--size", size_, {"tiny", "small", "full"}, FieldClass::kIdentity, "how much");
    t.Int("--seed", seed_, 0, FieldClass::kIdentity, "the same seed gives the same bytes");
    t.Int("--threads", threads_, 0, FieldClass::kFree, "0 is one per processor", 1024);
  }

  void Write(const fs::path& out) override {
    RequireWritableDirectory(out, "--out");
    const Size size = kSizes.at(size_);
    RefuseOtherShards(out, size.shards);
    const MarkovSource source(size.source, static_cast<uint64_t>(seed_));
    WriteShards(out, size, source);
    WriteFileAtomic(out / "truth.json", Truth(size, source, out).dump(1) + "\n");
  }

 private:
  void WriteShards(const fs::path& out, const Size& size, const MarkovSource& source) const {
    Progress progress("tokens", size.shards * size.shard_tokens, ProgressStyleFromEnvironment());
    const auto write = [&](int64_t shard) {
      std::vector<Token> text(static_cast<size_t>(size.shard_tokens));
      source.Generate(static_cast<uint64_t>(shard), text);
      WriteShard(out / ShardName(shard), size.source.vocab, text);
    };
    ForEach(size.shards, threads_, write, [&](int64_t done) { progress.Update(done * size.shard_tokens, ""); });
  }

  nlohmann::json Truth(const Size& size, const MarkovSource& source, const fs::path& out) const {
    const Entropies entropies = source.entropies();
    return {{"source", "markov"},
            {"order", 2},
            {"vocab", size.source.vocab},
            {"classes", size.source.classes},
            {"successors", size.source.successors},
            {"noise", 1.0 / MarkovSource::kNoise},
            {"max_weight", MarkovSource::kMaxWeight},
            {"seed", seed_},
            {"tokens", size.shards * size.shard_tokens},
            {"fingerprint", Corpus(out, {}, size.source.vocab).fingerprint()},
            {"entropy_rate", entropies.rate},
            {"entropy_given_one", entropies.given_one},
            {"entropy_unigram", entropies.unigram}};
  }

  std::string size_ = "small";
  int64_t seed_ = 42;
  int64_t threads_ = 0;
};

}  // namespace

std::unique_ptr<Synthesis> MakeSynthesis() { return std::make_unique<CorpusSynthesis>(); }

}  // namespace trainyard::lm

// Readers of token shards and texts, the windows that are samples, and what a configuration says about them.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/hash.h"
#include "trainer/config/load.h"
#include "trainer/task/language_model/corpus.h"
#include "trainer/task/language_model/options.h"

namespace trainyard::lm {
namespace {

class TokensTest : public ::testing::Test {
 protected:
  TokensTest() : folder_(fs::path(::testing::TempDir()) / ("tokens-" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~TokensTest() override { fs::remove_all(folder_); }

  // Tokens first, first + 1, ...
  fs::path Shard(const std::string& name, int64_t count, Token first = 0, int64_t vocab = 1000) const {
    std::vector<Token> tokens(static_cast<size_t>(count));
    std::iota(tokens.begin(), tokens.end(), first);
    WriteShard(folder_ / name, vocab, tokens);
    return folder_ / name;
  }
  fs::path Text(const std::string& name, const std::string& text) const {
    WriteFileAtomic(folder_ / name, text);
    return folder_ / name;
  }

  fs::path folder_;
};

template <class Read>
std::string ErrorOf(Read read) {
  try {
    read();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    return error.what();
  }
  return "no error";
}

std::string CorpusError(const fs::path& path, const HeldOut& held_out = {0.1, ""}, int64_t vocab = 65536) {
  return ErrorOf([&] { Corpus(path, held_out, vocab).fingerprint(); });
}

std::vector<Token> All(const TokenStream& stream) {
  std::vector<Token> tokens(static_cast<size_t>(stream.size()));
  stream.Read(0, tokens);
  return tokens;
}

TEST_F(TokensTest, AShardIsWhatTheDocumentationSays) {
  WriteShard(folder_ / "a.tokens", 300, std::vector<Token>{1, 299});
  const char expected[] = "TYTOKENS\1\0\0\0\x2c\1\0\0\2\0\0\0\0\0\0\0\1\0\x2b\1";
  EXPECT_EQ(ReadFile(folder_ / "a.tokens"), std::string(expected, sizeof(expected) - 1));
}

TEST_F(TokensTest, AMalformedShardIsNamedWithOffsetAndProblem) {
  const fs::path path = Shard("a.tokens", 4);
  const std::string good = ReadFile(path);
  auto changed = [&](size_t at, char value) {
    std::string content = good;
    content[at] = value;
    return content;
  };
  const struct {
    std::string content, expected;
  } cases[] = {
      {"", ": offset 0: truncated: a header has 24 bytes"},
      {good.substr(0, 23), ": offset 23: truncated: a header has 24 bytes"},
      {changed(0, 'X'), ": offset 0: not a token shard: it does not begin with TYTOKENS"},
      {changed(8, 2), ": offset 8: version 2 is not read; expected 1"},
      {changed(12, 0).replace(13, 1, 1, '\0'), ": offset 12: a vocabulary of 0 is not allowed; expected 1 to 65536"},
      {changed(15, 1), ": offset 12: a vocabulary of 16778216 is not allowed; expected 1 to 65536"},
      {good.substr(0, good.size() - 2), ": offset 16: the header says 4 tokens of 2 bytes, and 6 bytes follow it"},
      {good + "x", ": offset 16: the header says 4 tokens of 2 bytes, and 9 bytes follow it"},
      // A count whose bytes would overflow 64 bits.
      {changed(23, '\x80'),
       ": offset 16: the header says 9223372036854775812 tokens of 2 bytes, and 8 bytes follow it"},
      {changed(29, 3).replace(28, 1, 1, '\xe8'), ": offset 28: token 1000 is outside of the vocabulary of 1000"},
  };
  for (const auto& c : cases) {
    WriteFileAtomic(path, c.content);
    EXPECT_EQ(CorpusError(path), path.string() + c.expected);
  }
}

TEST_F(TokensTest, OnlyRegularFilesAreOpened) {
  const fs::path fifo = folder_ / "fifo.tokens", directory = folder_ / "folder" / "directory.tokens";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(CorpusError(fifo),
            "cannot read " + fifo.string() + ": not a regular file");  // and nobody waits for a writer
  fs::create_directories(directory);
  EXPECT_EQ(CorpusError(directory.parent_path()), "cannot read " + directory.string() + ": not a regular file");
  EXPECT_EQ(CorpusError("/dev/zero"), "cannot read /dev/zero: not a regular file");
  EXPECT_EQ(CorpusError(folder_ / "none"), (folder_ / "none").string() + ": no such file or folder");
}

// Ranks other than 0 begin without reading it; what is wrong is then seen where it is used.
TEST_F(TokensTest, OpeningReadsTheHeadersAlone) {
  const fs::path path = Shard("a.tokens", 100);
  std::string content = ReadFile(path);
  content.replace(24 + 2 * 60, 2, 2, '\xff');
  WriteFileAtomic(path, content);
  const Corpus corpus(path, {0, ""}, 1000);
  EXPECT_EQ(Windows(corpus.train(), 50).Read(0).size(), 51u);
  const std::string expected = path.string() + ": offset 144: token 65535 is outside of the vocabulary of 1000";
  EXPECT_EQ(ErrorOf([&] { Windows(corpus.train(), 99).Read(0); }), expected);
  int ticks = 0;
  EXPECT_EQ(ErrorOf([&] { corpus.fingerprint([&] { ++ticks; }); }), expected);
  EXPECT_GT(ticks, 0);
}

// As sparse files have them; few file systems take such.
TEST_F(TokensTest, MoreTokensThanCanBeCountedAreRefused) {
  struct Endless : TokenFile {
    int64_t size() const override { return int64_t{1} << 61; }
    int64_t vocab() const override { return 1; }
    void Read(int64_t, std::span<Token>) const override {}
  } file;
  TokenStream stream;
  stream.Append(file, 0, file.size());
  EXPECT_NE(ErrorOf([&] { stream.Append(file, 0, file.size()); }).find("more than 4611686018427387903 tokens"),
            std::string::npos);
}

// The next attempt compares what is there with what the run began with, and goes on or refuses; until then a sample may
// be half of one content and half of another.
TEST_F(TokensTest, AFileThatIsWrittenToWhileItIsOpenIsTheStoragesFailure) {
  const fs::path path = Shard("a.tokens", 100), text = Text("b.txt", std::string(200, 'a'));
  const Corpus shards(path, {0, ""}, 1000), texts(text, {0, ""}, 1000);
  EXPECT_NO_THROW(Windows(shards.train(), 10).Read(0));
  EXPECT_NO_THROW(Windows(texts.train(), 10).Read(0));
  const auto failure = [](const TokenStream& stream) {
    try {
      Windows(stream, 10).Read(0);
    } catch (const StorageError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  fs::resize_file(path, 24 + 2 * 50);
  EXPECT_EQ(failure(shards.train()),
            "cannot read " + path.string() + ": somebody has written to it since this run opened it");
  // As long as it was. A file system's clock has ticks of some milliseconds.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::fstream(text, std::ios::in | std::ios::out | std::ios::binary) << 'b';
  EXPECT_EQ(failure(texts.train()),
            "cannot read " + text.string() + ": somebody has written to it since this run opened it");
}

TEST_F(TokensTest, FilesFollowEachOtherByNameAndWindowsCrossThem) {
  Shard("b.tokens", 5, 10);
  Shard("a.tokens", 10, 0);
  Shard("c.tokens", 0);
  Shard("d.tokens", 5, 15);
  Text("truth.md", "not part of it");
  const Corpus corpus(folder_, {0, ""}, 1000);
  std::vector<Token> all(20);
  std::iota(all.begin(), all.end(), Token{0});
  EXPECT_EQ(All(corpus.train()), all);
  EXPECT_EQ(corpus.test().size(), 0);
  EXPECT_EQ(corpus.fingerprint(), HexDigest(Xxh3Of(std::span<const Token>(all))));
  // Windows of 5 at stride 4: tokens 0 to 16, and three that fill none.
  const Windows windows(corpus.train(), 4);
  ASSERT_EQ(windows.size(), 4);
  for (int64_t i = 0; i < 4; ++i) {
    const auto first = static_cast<Token>(4 * i);
    EXPECT_EQ(windows.Read(i),
              (std::vector<Token>{first, Token(first + 1), Token(first + 2), Token(first + 3), Token(first + 4)}));
  }
  EXPECT_EQ(Windows(corpus.train(), 19).size(), 1);
  EXPECT_EQ(Windows(corpus.train(), 20).size(), 0);
}

TEST_F(TokensTest, TheEndOrANamedFileIsHeldOut) {
  Shard("a.tokens", 10, 0);
  Shard("b.tokens", 10, 10);
  const Corpus last(folder_, {0.25, ""}, 1000);
  EXPECT_EQ(last.train().size(), 15);
  EXPECT_EQ(All(last.test()), (std::vector<Token>{15, 16, 17, 18, 19}));
  const Corpus most(folder_, {0.75, ""}, 1000);
  EXPECT_EQ(All(most.train()), (std::vector<Token>{0, 1, 2, 3, 4}));
  EXPECT_EQ(most.test().size(), 15);
  const Corpus named(folder_, {0.25, "a.tokens"}, 1000);
  EXPECT_EQ(All(named.train()).front(), 10);
  EXPECT_EQ(All(named.test()).front(), 0);
  EXPECT_EQ(named.train().size() + named.test().size(), named.size());
  EXPECT_EQ(named.fingerprint(), last.fingerprint());
  EXPECT_EQ(CorpusError(folder_, {0, "c.tokens"}).substr(0, 31), "data.test_shard: no file c.toke");
}

TEST_F(TokensTest, ATextIsItsBytesAndAnEnd) {
  const fs::path path = Text("a.txt", std::string("h\xffi\0", 4));
  const Corpus corpus(path, {0, ""}, kTextVocab);
  EXPECT_EQ(All(corpus.train()), (std::vector<Token>{'h', 255, 'i', 0, kEndOfText}));
  // The same tokens, the same fingerprint, whatever they lie in.
  WriteShard(folder_ / "b.tokens", kTextVocab, std::vector<Token>{'h', 255, 'i', 0, kEndOfText});
  EXPECT_EQ(Corpus(folder_ / "b.tokens", {0, ""}, kTextVocab).fingerprint(), corpus.fingerprint());
  EXPECT_EQ(CorpusError(path, {}, 256),
            path.string() + ": a vocabulary of 257, and model.vocab is 256; set model.vocab: 257");
  EXPECT_NE(CorpusError(Text("packed.txt", "\x1f\x8b\x08 and more")).find("a file of gzip's; expected text"),
            std::string::npos);
  fs::remove(folder_ / "packed.txt");
  EXPECT_EQ(CorpusError(folder_), folder_.string() + ": both *.tokens and *.txt; expected files of one kind");
  const fs::path empty = folder_ / "empty";
  fs::create_directories(empty);
  EXPECT_EQ(CorpusError(empty), empty.string() + ": no *.tokens or *.txt in it; expected files of one kind");
}

TEST_F(TokensTest, ATruthOfOtherDataIsRefused) {
  Shard("a.tokens", 10);
  EXPECT_FALSE(ReadTruth(folder_));
  EXPECT_FALSE(ReadTruth(folder_ / "a.tokens"));
  Text("truth.json", R"({"entropy_rate": 1.5, "fingerprint": "f"})");
  EXPECT_EQ(ReadTruth(folder_)->entropy_rate, 1.5);
  EXPECT_NE(ErrorOf([&] { RequireTruthOf(folder_, "g"); }).find("it is of other data"), std::string::npos);
  Text("truth.json", "{");
  EXPECT_NE(ErrorOf([&] { ReadTruth(folder_); }).find("no number entropy_rate"), std::string::npos);
}

constexpr TaskDeclaration kTask[] = {{"language_model", "", MakeOptions}};

Config Parse(const std::vector<std::string>& sets) {
  return ParseConfig("task: {name: language_model}\ndata: {path: /d}\ntrain: {steps: 5}\n", "job.yaml", sets, kTask);
}

TEST(LanguageOptions, APresetSetsWhatIsNotSet) {
  const ModelShape big = OptionsOf(Parse({"model.preset=gpt2_124m"})).shape();
  EXPECT_EQ(big.vocab, 50257);
  EXPECT_EQ(big.context, 1024);
  EXPECT_EQ(big.layers, 12);
  EXPECT_EQ(big.dropout, 0.1);
  // Whichever comes first.
  const ModelShape mixed = OptionsOf(Parse({"model.context=32", "model.preset=gpt2_124m", "model.dropout=0"})).shape();
  EXPECT_EQ(mixed.context, 32);
  EXPECT_EQ(mixed.dropout, 0);
  EXPECT_EQ(mixed.dim, 768);
  EXPECT_THROW(Parse({"model.dropout=1"}), ConfigError);
  EXPECT_THROW(Parse({"model.dropout=x"}), ConfigError);
  EXPECT_THROW(Parse({"model.vocab=65537"}), ConfigError);
  EXPECT_THROW(Parse({"model.heads=5"}), ConfigError);
  EXPECT_NO_THROW(Parse({"model.dropout=auto", "model.heads=4"}));
}

}  // namespace
}  // namespace trainyard::lm

#include "trainer/data/gzip.h"

#include <libdeflate.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/input_file.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostBehind = 16 << 20;  // of what follows the bytes that are wanted

[[noreturn]] void FailGzip(const fs::path& path, const std::string& problem) {
  throw DataError(path.string() + ": " + problem);
}

// Members of a gzip file, one piece at a time, by zlib.
class InflateStream {
 public:
  InflateStream(const fs::path& path, std::span<const std::byte> compressed) : path_(path), left_(compressed) {
    if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~InflateStream() { inflateEnd(&stream_); }
  InflateStream(const InflateStream&) = delete;
  InflateStream& operator=(const InflateStream&) = delete;

  // Fewer bytes than `to` takes only at the end.
  size_t Read(std::span<std::byte> to) {
    size_t done = 0;
    while (done < to.size() && !ended_) {
      Feed();
      const auto most = static_cast<uInt>(std::min<size_t>(to.size() - done, 1 << 30));
      stream_.next_out = reinterpret_cast<Bytef*>(to.data() + done);
      stream_.avail_out = most;
      const int result = inflate(&stream_, Z_NO_FLUSH);
      done += most - stream_.avail_out;
      if (result == Z_STREAM_END) {
        NextMember();
      } else if (result == Z_MEM_ERROR) {
        throw std::bad_alloc();
      } else if (result == Z_BUF_ERROR || (result == Z_OK && stream_.avail_in == 0 && left_.empty())) {
        if (done < to.size()) FailGzip(path_, "truncated gzip data");
      } else if (result != Z_OK) {
        FailGzip(path_, std::string("damaged gzip data: ") + (stream_.msg ? stream_.msg : zError(result)));
      }
    }
    return done;
  }

 private:
  void Feed() {
    if (stream_.avail_in > 0) return;
    const auto piece = left_.first(std::min<size_t>(left_.size(), 1 << 30));
    stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(piece.data()));
    stream_.avail_in = static_cast<uInt>(piece.size());
    left_ = left_.subspan(piece.size());
  }
  // Zeros behind a member are padding, as gzip takes them.
  void NextMember() {
    for (;;) {
      Feed();
      while (stream_.avail_in > 0 && *stream_.next_in == 0) ++stream_.next_in, --stream_.avail_in;
      if (stream_.avail_in > 0) break;
      if (left_.empty()) {
        ended_ = true;
        return;
      }
    }
    inflateReset(&stream_);
  }

  const fs::path& path_;
  std::span<const std::byte> left_;
  z_stream stream_{};
  bool ended_ = false;
};

struct FreeDecompressor {
  void operator()(libdeflate_decompressor* d) const { libdeflate_free_decompressor(d); }
};

// By libdeflate: true where the members fill `to` exactly and nothing follows. On false `to` holds anything.
bool InflateExactly(std::span<const std::byte> compressed, std::span<std::byte> to) {
  const std::unique_ptr<libdeflate_decompressor, FreeDecompressor> decompressor(libdeflate_alloc_decompressor());
  if (!decompressor) throw std::bad_alloc();
  while (!compressed.empty()) {
    size_t used = 0, made = 0;
    const libdeflate_result result = libdeflate_gzip_decompress_ex(
        decompressor.get(), compressed.data(), compressed.size(), to.data(), to.size(), &used, &made);
    if (result != LIBDEFLATE_SUCCESS) return false;
    compressed = compressed.subspan(used);
    to = to.subspan(made);
  }
  return to.empty();
}

}  // namespace

bool IsGzip(std::span<const std::byte> content) {
  return content.size() >= 2 && content[0] == std::byte{0x1f} && content[1] == std::byte{0x8b};
}

uint64_t MostInflated(uint64_t compressed) { return compressed * 1032 + 1024; }

std::vector<std::byte> ReadDataFile(const fs::path& path, uint64_t limit) {
  try {
    const fs::file_status status = LookAt(path);
    if (!fs::exists(status)) FailGzip(path, "no such file");
    if (!fs::is_regular_file(status)) FailGzip(path, "not a file");
    const InputFile file(path);
    if (file.size() > limit)
      FailGzip(path, HumanBytes(static_cast<double>(file.size())) + "; expected at most " +
                         HumanBytes(static_cast<double>(limit)));
    std::vector<std::byte> content(file.size());
    file.ReadAt(0, content);
    return content;
  } catch (const RefusedPathError& refused) {
    throw DataError(refused.what());
  }
}

size_t InflateStart(const fs::path& path, std::span<const std::byte> compressed, std::span<std::byte> to) {
  return InflateStream(path, compressed).Read(to);
}

void Inflate(const fs::path& path, std::span<const std::byte> compressed, std::span<std::byte> to) {
  if (InflateExactly(compressed, to)) return;
  // Either something is wrong, which zlib names, or more follows, which zlib can drop.
  InflateStream stream(path, compressed);
  const size_t got = stream.Read(to);
  if (got < to.size()) FailGzip(path, Format("truncated: %zu of %zu bytes, decompressed", got, to.size()));
  std::vector<std::byte> behind(1 << 16);
  uint64_t dropped = 0;
  for (size_t more; (more = stream.Read(behind)) > 0;) {
    dropped += more;
    if (dropped > kMostBehind) FailGzip(path, "it goes on for more than 16 MiB behind its values");
  }
}

std::string ReadText(const fs::path& path, uint64_t limit) {
  const std::vector<std::byte> content = ReadDataFile(path, limit);
  if (!IsGzip(content)) return {reinterpret_cast<const char*>(content.data()), content.size()};
  InflateStream stream(path, content);
  std::string text;
  std::vector<std::byte> piece(1 << 20);
  for (size_t got; (got = stream.Read(piece)) > 0;) {
    if (text.size() + got > limit)
      FailGzip(path, "more than " + HumanBytes(static_cast<double>(limit)) + " when it is decompressed");
    text.append(reinterpret_cast<const char*>(piece.data()), got);
  }
  return text;
}

std::string Gzip(std::string_view content, int level) {
  const std::unique_ptr<libdeflate_compressor, decltype(&libdeflate_free_compressor)> compressor(
      libdeflate_alloc_compressor(level), libdeflate_free_compressor);
  if (!compressor) throw std::bad_alloc();
  std::string out(libdeflate_gzip_compress_bound(compressor.get(), content.size()), '\0');
  const size_t size =
      libdeflate_gzip_compress(compressor.get(), content.data(), content.size(), out.data(), out.size());
  if (size == 0) throw std::logic_error("libdeflate: its own bound was too small");
  out.resize(size);
  return out;
}

}  // namespace trainyard

#include "trainer/metrics/leading_lines.h"

#include <algorithm>
#include <span>

#include "trainer/base/error.h"
#include "trainer/base/file.h"

namespace trainyard {
namespace {

constexpr uint64_t kPiece = 1 << 20;

void CopyFront(const InputFile& file, uint64_t bytes, const fs::path& target, const fs::path& to, const Tick& tick) {
  OutputFile output(to);
  std::string piece;
  for (uint64_t offset = 0; offset < bytes; offset += piece.size()) {
    if (tick) tick();
    piece.resize(static_cast<size_t>(std::min(kPiece, bytes - offset)));
    file.ReadAt(offset, std::as_writable_bytes(std::span(piece)));
    output.Write(piece);
  }
  output.Close();
  fs::permissions(to, fs::status(target).permissions());
}

}  // namespace

uint64_t LeadingLines(const InputFile& file, const Stays& stays, const Tick& tick) {
  uint64_t kept = 0, seen = 0;
  std::string piece, line;
  for (uint64_t offset = 0; offset < file.size(); offset += piece.size()) {
    if (tick) tick();
    piece.resize(static_cast<size_t>(std::min(kPiece, file.size() - offset)));
    file.ReadAt(offset, std::as_writable_bytes(std::span(piece)));
    size_t begin = 0;
    for (size_t end; (end = piece.find('\n', begin)) != std::string::npos; begin = end + 1) {
      line.append(piece, begin, end - begin);
      seen += line.size() + 1;
      const std::optional<bool> fate = stays(line);
      if (fate == false) return kept;
      if (fate) kept = seen;
      line.clear();
    }
    line.append(piece, begin);
  }
  return kept;
}

void KeepLeadingLines(const std::filesystem::path& path, const Stays& stays, const AsOwner& as_owner,
                      const Tick& tick) {
  const fs::path target = fs::canonical(path);  // a link stays one
  const InputFile file(target);
  const uint64_t kept = LeadingLines(file, stays, tick);
  std::optional<Replacement> lines;
  try {
    lines.emplace(target, [&](const fs::path& temporary) { CopyFront(file, kept, target, temporary, tick); });
  } catch (const StorageError&) {
    if (kept < file.size()) throw;
    return;  // every line stays where it is: what comes is appended, and needs no room for a second copy
  }
  const auto commit = [&] { lines->Commit(); };
  as_owner ? as_owner(commit) : commit();
}

}  // namespace trainyard

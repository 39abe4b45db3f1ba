#include "trainer/metrics/leading_lines.h"

#include <algorithm>
#include <span>

#include "trainer/base/file.h"

namespace trainyard {
namespace {

constexpr uint64_t kPiece = 1 << 20;

}  // namespace

uint64_t LeadingLines(const InputFile& file, const Stays& stays) {
  uint64_t kept = 0, seen = 0;
  std::string piece, line;
  for (uint64_t offset = 0; offset < file.size(); offset += piece.size()) {
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

void KeepLeadingLines(const std::filesystem::path& path, const Stays& stays, const AsOwner& as_owner) {
  const fs::path target = fs::canonical(path);  // a link stays one
  const InputFile file(target);
  const uint64_t kept = LeadingLines(file, stays);
  Replacement lines(target, [&](const fs::path& temporary) {
    OutputFile output(temporary);
    std::string piece;
    for (uint64_t offset = 0; offset < kept; offset += piece.size()) {
      piece.resize(static_cast<size_t>(std::min(kPiece, kept - offset)));
      file.ReadAt(offset, std::as_writable_bytes(std::span(piece)));
      output.Write(piece);
    }
    output.Close();
    fs::permissions(temporary, fs::status(target).permissions());
  });
  const auto commit = [&] { lines.Commit(); };
  as_owner ? as_owner(commit) : commit();
}

}  // namespace trainyard

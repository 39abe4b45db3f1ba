// Texts that thousands of records have in common, such as a node's name: each is held once.
#ifndef TRAINYARD_OPERATOR_BASE_SHARED_TEXT_H_
#define TRAINYARD_OPERATOR_BASE_SHARED_TEXT_H_

#include <algorithm>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <unordered_set>

namespace trainyard {

// A text that is never changed, only replaced; copies share it. Two pointers wide, and no more when it is empty.
class SharedText {
 public:
  SharedText() = default;
  SharedText(const std::string& text) : text_(text.empty() ? nullptr : std::make_shared<const std::string>(text)) {}
  SharedText(const char* text) : SharedText(std::string(text)) {}

  const std::string& str() const {
    static const std::string none;
    return text_ ? *text_ : none;
  }
  operator const std::string&() const { return str(); }
  bool empty() const { return !text_; }
  // How many hold this very text; 0: it is empty.
  long holders() const { return text_.use_count(); }

  friend bool operator==(const SharedText& a, const SharedText& b) { return a.text_ == b.text_ || a.str() == b.str(); }
  friend bool operator==(const SharedText& a, const std::string& b) { return a.str() == b; }
  friend bool operator==(const SharedText& a, const char* b) { return a.str() == b; }
  friend std::string operator+(const std::string& a, const SharedText& b) { return a + b.str(); }
  friend std::string operator+(const SharedText& a, const std::string& b) { return a.str() + b; }
  friend std::ostream& operator<<(std::ostream& out, const SharedText& text) { return out << text.str(); }

 private:
  std::shared_ptr<const std::string> text_;
};

// Gives equal texts one place. What nobody else holds any more is let go of now and then: at most as many as are held.
// For one thread at a time; the texts may be anywhere.
class TextPool {
 public:
  SharedText Keep(const std::string& text) {
    if (text.empty()) return {};
    if (const auto found = texts_.find(std::string_view(text)); found != texts_.end()) return *found;
    if (texts_.size() >= sweep_at_) {
      std::erase_if(texts_, [](const SharedText& each) { return each.holders() == 1; });
      sweep_at_ = std::max(kFirstSweep, 2 * texts_.size());
    }
    return *texts_.emplace(text).first;
  }
  size_t size() const { return texts_.size(); }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
    size_t operator()(const SharedText& text) const { return (*this)(std::string_view(text.str())); }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(const SharedText& a, const SharedText& b) const { return a.str() == b.str(); }
    bool operator()(std::string_view a, const SharedText& b) const { return a == b.str(); }
    bool operator()(const SharedText& a, std::string_view b) const { return a.str() == b; }
  };
  static constexpr size_t kFirstSweep = 1024;
  std::unordered_set<SharedText, Hash, Equal> texts_;
  size_t sweep_at_ = kFirstSweep;
};

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_BASE_SHARED_TEXT_H_

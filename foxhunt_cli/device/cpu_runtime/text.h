// A report under construction: text in a fixed buffer, cut off where it ends.
//
// A fiber may write it from a small stack and no C++ library is linked, so neither streams nor std::string.
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

namespace fh {

// Zeroed memory is an empty Text.
class Text {
  public:
    __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
        va_list values;
        va_start(values, format);
        const int wrote = vsnprintf(buffer_ + length_, sizeof buffer_ - length_, format, values);
        va_end(values);
        if (wrote > 0) length_ += size_t(wrote);
        if (length_ >= sizeof buffer_) length_ = sizeof buffer_ - 1;
    }
    void clear() { buffer_[length_ = 0] = 0; }
    const char* c_str() const { return buffer_; }

  private:
    size_t length_;
    char buffer_[2048];
};

} // namespace fh

// Owners of PCRE2's objects. Header only: who includes it links pcre2.
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <new>

namespace coprime {

struct Pcre2Free {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};
template <class T>
using Pcre2Handle = std::unique_ptr<T, Pcre2Free>;

// std::bad_alloc for nullptr.
template <class T>
Pcre2Handle<T> pcre2_owned(T* pointer) {
  if (pointer == nullptr) throw std::bad_alloc();
  return Pcre2Handle<T>(pointer);
}

}  // namespace coprime

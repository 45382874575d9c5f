// Which rank counts other engines refuse, and why: what the rules of their documentation and sources ask of a model.
#pragma once

#include <string>
#include <vector>

#include "plan/model_numbers.h"

namespace coprime {

// vLLM, and SGLang on GPUs: the rank count divides the query heads; it divides the KV heads, or they divide it (each is
// then copied); it divides the width of the MLP, or of an expert; it divides the vocabulary rounded up to 64.
struct Refusals {
  bool query_heads = false, kv_heads = false, width = false, vocabulary = false;
  bool any() const { return query_heads || kv_heads || width || vocabulary; }
  // "qk": query heads and KV heads; i the width, v the vocabulary.
  std::string letters() const;
};
Refusals equal_division_refusals(const ModelNumbers& model, int64_t ranks);

// Engines that divide without copying KV heads (MLC and those like it): the rank count divides KV heads and width.
bool strict_division_refuses(const ModelNumbers& model, int64_t ranks);

// What does not divide, as the first of the two has it: "24 query heads", "a vocabulary of 248320".
std::vector<std::string> refusal_reasons(const ModelNumbers& model, int64_t ranks);
// The same in few words: "query heads, KV heads, width".
std::string short_reasons(const ModelNumbers& model, int64_t ranks);

}  // namespace coprime

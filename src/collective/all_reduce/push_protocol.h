// The words of the protocol in which data is its own flag: what hosts, kernels and the model in the tests agree on.
//
// A slot's words of 32 bits that hold nothing are kEmptyWord. A sender never sends it: such a word of its vector is two
// numbers that are none in bf16 or f16, or one in f32, and travels as kRenamedWord, which is as little a number. All
// other words, zeros of either sign among them, travel as they are. A receiver polls until no word is empty, and
// empties the words that it has read.
//
// Why two halves suffice, call k using half k mod 2. A peer writes a word of half h for call k only after its call k -
// 1 is over, in which it read this rank's whole vector of call k - 1; this rank sent that after its call k - 2 had
// ended, hence after it had emptied every word of half h that it read in call k - 2. So a word is filled only when it
// is empty, and emptied only after it was read. It needs: one order of calls on all ranks, a call that loads and
// stores nothing before the one before it has ended (one stream; a kernel may begin early, and waits), and that every
// rank waits for every other in each call. It
// does not need that a rank's words arrive in their order, that calls are of one size, or any count of calls: the
// call's number serves for its parity alone.
#pragma once

#include <cstdint>

namespace coprime {

inline constexpr uint32_t kEmptyWord = 0xfffafffa;
inline constexpr uint32_t kRenamedWord = 0x7fc07fc0;

constexpr uint32_t sent_word(uint32_t word) { return word == kEmptyWord ? kRenamedWord : word; }

}  // namespace coprime

// The JSON messages between front and ranks, and those of joining.
#include "engine/messages.h"
#include "engine/join_messages.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coprime;
  if (size == 0) return 0;
  const std::string_view text = text_of(data + 1, size - 1);
  const auto read = [&] {
    switch (data[0] % 10) {
      case 0:
        return void(from_json<RankStart>(text));
      case 1:
        return void(from_json<RankFacts>(text));
      case 2:
        return void(from_json<RankGroup>(text));
      case 3:
        return void(from_json<GroupResult>(text));
      case 4:
        return void(from_json<LinkTable>(text));
      case 5:
        return void(from_json<LinkReport>(text));
      case 6:
        return void(from_json<RankReady>(text));
      case 7:
        return void(from_json<RankFailure>(text));
      case 8:
        return void(from_json<LinkStart>(text));
      default:
        return void();
    }
  };
  fuzz(ErrorKind::kInternal, read);
  return fuzz(ErrorKind::kLink, [&] {
    if (data[0] % 2 == 0)
      decode_join_request(bytes_of(data + 1, size - 1));
    else
      decode_join_answer(bytes_of(data + 1, size - 1));
  });
}

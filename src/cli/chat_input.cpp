#include "cli/chat_input.h"

#include "base/error.h"
#include "cli/text_input.h"

namespace coprime {

RenderedChat render_chat(const ChatTemplate& chat, const ChatSettings& settings) {
  if (settings.message && settings.message->empty()) fail(ErrorKind::kUsage, "--chat is empty: give a message");
  const std::string conversation =
      settings.message ? conversation_of(*settings.message) : read_text_input(*settings.file);
  return chat.render(conversation, settings.message ? "--chat" : *settings.file,
                     {.variables = settings.options, .now = local_time()});
}

}  // namespace coprime

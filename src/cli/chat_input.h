// A conversation from the command line, as the model's chat template writes it.
#pragma once

#include <optional>
#include <string>

#include "cli/settings.h"
#include "template/chat_template.h"

namespace coprime {

// Of settings that are given(). Error(kUsage) for an empty message, and as ChatTemplate::render() has it.
RenderedChat render_chat(const ChatTemplate& chat, const ChatSettings& settings);

}  // namespace coprime

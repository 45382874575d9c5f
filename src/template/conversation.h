// A caller's JSON as a template's variables. Internal to the folder.
#pragma once

#include <string>
#include <string_view>

#include "template/value.h"

namespace coprime::templates {

// Adds to `variables` what chat_template.h says of a conversation. Error(kUsage) names `where`.
void read_conversation(std::string_view json, const std::string& where, Dict* variables);

// The same of an object of further variables.
void read_variables(std::string_view json, const std::string& where, Dict* variables);

}  // namespace coprime::templates

// For the members of World that give an object out.
#pragma once

// The object is made once, by the expression, and kept under its name.
#define MADE(Type, name, expression)                         \
  if (!can()) return {};                                     \
  uint64_t& kept = slot(name);                               \
  if (kept == 0) kept = (uint64_t)(expression); /* NOLINT */ \
  return (Type)kept                             /* NOLINT */

// Events that a program can wait for.
#pragma once

#include "schema/nvml/basic.h"

// What nvmlEventSetWait wrote before it had a number.
typedef struct {
  nvmlDevice_t device;
  unsigned long long eventType;
  unsigned long long eventData;
} nvmlEventData_v1_t;

// eventData is the number of an Xid error, or nothing.
typedef struct {
  nvmlDevice_t device;
  unsigned long long eventType;
  unsigned long long eventData;
  unsigned int gpuInstanceId;
  unsigned int computeInstanceId;
} nvmlEventData_t;

// Bits of event types.
#define nvmlEventTypeNone 0x0LL
#define nvmlEventTypeSingleBitEccError 0x1LL
#define nvmlEventTypeDoubleBitEccError 0x2LL
#define nvmlEventTypePState 0x4LL
#define nvmlEventTypeXidCriticalError 0x8LL
#define nvmlEventTypeClock 0x10LL
#define nvmlEventTypePowerSourceChange 0x80LL
#define nvmlEventMigConfigChange 0x100LL
#define nvmlEventTypeSingleBitEccErrorStorm 0x200LL
#define nvmlEventTypeDramRetirementEvent 0x400LL
#define nvmlEventTypeDramRetirementFailure 0x800LL
#define nvmlEventTypeNonFatalPoisonError 0x1000LL
#define nvmlEventTypeFatalPoisonError 0x2000LL
#define nvmlEventTypeGpuUnavailableError 0x4000LL
#define nvmlEventTypeGpuRecoveryAction 0x8000LL
#define nvmlEventTypeAll 0xff9fLL

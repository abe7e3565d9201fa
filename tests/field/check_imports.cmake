# Fails where OBJECT imports anything but memory copies and what every C++ object may need: no
# erf, exp, log or pow, which differ between C libraries, and no allocation.
execute_process(COMMAND ${NM} -u ${OBJECT} OUTPUT_VARIABLE symbols RESULT_VARIABLE outcome)
if(NOT outcome EQUAL 0)
    message(FATAL_ERROR "nm failed on ${OBJECT}")
endif()
string(REGEX MATCHALL "U [^\n]+" symbols "${symbols}")
list(TRANSFORM symbols REPLACE "^U " "")
set(allowed "mem(cpy|move|set|cmp)" __stack_chk_fail _GLOBAL_OFFSET_TABLE_ __gxx_personality_v0
    _Unwind_Resume _ZSt9terminatev)
list(JOIN allowed "|" allowed)
list(FILTER symbols EXCLUDE REGEX "^(${allowed})$")
if(symbols)
    message(FATAL_ERROR "the coding path imports: ${symbols}")
endif()

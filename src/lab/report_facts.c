/* Functions shared by the parts of a report: notes on its page, and reading of the data. */
#include "report_facts.h"

void kvf__report_note(kvf__report_facts *r, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    kvf_json_add(r->notes, kvf_json_new_str(text));
}

kvf_eval_options kvf__report_data(const kvf_report_options *o)
{
    return (kvf_eval_options){.data = o->data,
                              .format = o->format,
                              .columns = o->columns,
                              .delimiter = o->delimiter,
                              .map = o->map,
                              .overlong = o->overlong,
                              .no_header = o->no_header,
                              .max_length = o->max_length,
                              .share_off = true};
}

#!/usr/bin/env python3
"""Reads a trace that `tailsight export --format perfetto` wrote with Perfetto's own definitions: perfetto-check.py TRACE

Needs the Python package perfetto (`pip install perfetto`); without it, exit 77 and the reason on standard error. Out, as JSON: packets, track
descriptors, slices that begin, flows, the fields that the definitions do not know, and where trace_processor_shell is on PATH what it
loaded and how many errors its statistics have. Exit 1 where a packet cannot be decoded, or a slice ends that did not begin.
"""
import json
import shutil
import subprocess
import sys

try:
    from google.protobuf import unknown_fields
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
except ImportError as error:
    print(f"python3 lacks the package perfetto, which has Perfetto's definitions ({error}): pip install perfetto", file=sys.stderr)
    sys.exit(77)


def unknown(message, path, found):
    """Fields of a message, and of those in it, that the definitions do not have."""
    for field in unknown_fields.UnknownFieldSet(message):
        found.add(f"{path}.{field.field_number}")
    for descriptor, value in message.ListFields():
        if descriptor.type == descriptor.TYPE_MESSAGE:
            repeated = not hasattr(value, "ListFields")
            for part in value if repeated else [value]:
                unknown(part, f"{path}.{descriptor.name}", found)


def loaded(path):
    """What Perfetto's trace processor has of it; None where there is no trace processor."""
    program = shutil.which("trace_processor_shell")
    if program is None:
        return None
    query = ("select (select count(*) from slice) as slices, (select count(*) from track) as tracks, (select count(*) from flow) as flows,"
             " (select coalesce(sum(value), 0) from stats where severity in ('error', 'data_loss')) as errors;")
    output = subprocess.run([program, "-Q", query, path], check=True, capture_output=True, text=True).stdout
    names, values = [line.replace('"', "").split(",") for line in output.strip().splitlines()[-2:]]
    return dict(zip(names, map(int, values)))


def main(path):
    trace = Trace()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())
    found, tracks, slices, flows, open_slices = set(), set(), 0, set(), {}
    unknown(trace, "trace", found)
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            tracks.add(packet.track_descriptor.uuid)
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        if event.track_uuid not in tracks:
            sys.exit(f"an event of track {event.track_uuid}, which is not described before it")
        flows.update(event.flow_ids)
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            slices += 1
            open_slices[event.track_uuid] = open_slices.get(event.track_uuid, 0) + 1
        elif event.type == TrackEvent.TYPE_SLICE_END:
            open_slices[event.track_uuid] = open_slices.get(event.track_uuid, 0) - 1
            if open_slices[event.track_uuid] < 0:
                sys.exit(f"a slice of track {event.track_uuid} ends that did not begin")
    if any(open_slices.values()):
        sys.exit("a slice has no end")
    print(json.dumps({"packets": len(trace.packet), "tracks": len(tracks), "slices": slices, "flows": len(flows), "unknown": sorted(found), "loaded": loaded(path)}))


if __name__ == "__main__":
    main(sys.argv[1])

import java.util.Arrays;

/**
 * The rules of Winnow's `idc-access-log` on bytes, as an expert would write them for a Kafka Streams or Flink job.
 *
 * Horspool's search finds the separators and skips most bytes of long fields. An instance belongs to one thread.
 */
final class Cleansing {
    private static final byte[] MARK = ascii("<<<!>>>");
    private static final byte[] SEPARATOR = ascii("<<<!>>>,<<<!>>>");
    private static final int[] SKIP = skips();
    private static final byte[] HEX = ascii("0123456789ABCDEF");
    private static final int[] DAYS = {0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

    private static final int FIELDS = 15;
    private static final int HOUSEID = 1;
    private static final int GATHERTIME = 2;
    private static final int SRCIP = 3;
    private static final int DESTIP = 4;
    private static final int SRCPORT = 5;
    private static final int DESTPORT = 6;
    private static final int URL = 13;

    private final int[] begins = new int[FIELDS];
    private final int[] ends = new int[FIELDS];
    private byte[] out = new byte[4096];
    private int length;
    private byte[] line;
    private String reason;

    /** Returns the cleansed line, or null if it is rejected; `reason` then says why. */
    byte[] cleanse(byte[] value) {
        line = value;
        reason = fault();
        return reason == null ? cleansed() : null;
    }

    /** Why the last line was rejected. */
    String reason() {
        return reason;
    }

    /** Splits and checks the line. Returns the first fault in the order of the rules. */
    private String fault() {
        int end = line == null ? 0 : withoutLineEnd();
        if (end == 0) {
            return "empty";
        }
        if (end < 2 * MARK.length || !standsAt(MARK, 0) || !standsAt(MARK, end - MARK.length)) {
            return "no_marker";
        }
        if (!split(MARK.length, end - MARK.length)) {
            return "field_count";
        }
        for (int field = HOUSEID; field <= DESTPORT; field++) {
            trim(field);
        }
        if (begins[HOUSEID] == ends[HOUSEID]) {
            return "houseid";
        }
        if (!isTime(begins[GATHERTIME], ends[GATHERTIME])) {
            return "gathertime";
        }
        if (!isAddress(SRCIP)) {
            return "srcip";
        }
        if (!isAddress(DESTIP)) {
            return "destip";
        }
        if (!isPort(begins[SRCPORT], ends[SRCPORT])) {
            return "srcport";
        }
        if (!isPort(begins[DESTPORT], ends[DESTPORT])) {
            return "destport";
        }
        return isLegal(begins[HOUSEID], ends[HOUSEID]) ? null : "illegal_character";
    }

    private int withoutLineEnd() {
        int end = line.length;
        if (end > 0 && line[end - 1] == '\n') {
            end--;
            return end > 0 && line[end - 1] == '\r' ? end - 1 : end;
        }
        return end > 0 && line[end - 1] == '\r' ? end - 1 : end;
    }

    /** Records the bounds of each field. Returns whether the number of fields is right. */
    private boolean split(int begin, int end) {
        int field = 0;
        for (int from = begin; ; from = ends[field++] + SEPARATOR.length) {
            if (field == FIELDS) {
                return false;
            }
            begins[field] = from;
            ends[field] = nextSeparator(from, end);
            if (ends[field] == end) {
                return field == FIELDS - 1;
            }
        }
    }

    /** Returns the start of the next separator, or `end` if there is none. */
    private int nextSeparator(int from, int end) {
        int last = from + SEPARATOR.length - 1;
        while (last < end) {
            byte letter = line[last];
            if (letter == '>' && standsAt(SEPARATOR, last - SEPARATOR.length + 1)) {
                return last - SEPARATOR.length + 1;
            }
            last += SKIP[letter & 0xFF];
        }
        return end;
    }

    private boolean standsAt(byte[] word, int at) {
        return Arrays.equals(line, at, at + word.length, word, 0, word.length);
    }

    private void trim(int field) {
        int begin = begins[field];
        int end = ends[field];
        while (begin < end && isBlank(line[begin])) {
            begin++;
        }
        while (begin < end && isBlank(line[end - 1])) {
            end--;
        }
        begins[field] = begin;
        ends[field] = end;
    }

    private byte[] cleansed() {
        if (out.length < 3 * line.length + FIELDS) {
            out = new byte[3 * line.length + FIELDS];
        }
        length = 0;
        put(HOUSEID);
        out[length++] = '|';
        put(GATHERTIME);
        putPlace(SRCIP, SRCPORT);
        putPlace(DESTIP, DESTPORT);
        out[length++] = '|';
        putEscaped(begins[URL], ends[URL]);
        return Arrays.copyOf(out, length);
    }

    private void put(int field) {
        put(begins[field], ends[field] - begins[field]);
    }

    private void put(int from, int count) {
        System.arraycopy(line, from, out, length, count);
        length += count;
    }

    private void putPlace(int address, int port) {
        boolean bracketed = isIpv6(begins[address], ends[address]);
        out[length++] = '|';
        if (bracketed) {
            out[length++] = '[';
        }
        put(address);
        if (bracketed) {
            out[length++] = ']';
        }
        out[length++] = ':';
        put(port);
    }

    /** Copies runs of safe bytes and percent-encodes the others. */
    private void putEscaped(int begin, int end) {
        for (int at = begin; at < end; ) {
            int good = legalUpTo(at, end);
            put(at, good - at);
            if (good < end) {
                out[length++] = '%';
                out[length++] = HEX[line[good] >> 4 & 0xF];
                out[length++] = HEX[line[good] & 0xF];
                good++;
            }
            at = good;
        }
    }

    private boolean isLegal(int begin, int end) {
        return legalUpTo(begin, end) == end;
    }

    /** Returns the position of the first byte that would break the output, or `end`. */
    private int legalUpTo(int at, int end) {
        while (at < end) {
            int letter = line[at];
            if (letter >= 0x20 && letter < 0x7F && letter != '|') {
                at++;
            } else {
                int bytes = letter < 0 ? sequence(at, end) : 0;
                if (bytes == 0) {
                    return at;
                }
                at += bytes;
            }
        }
        return end;
    }

    /** Returns the length of the UTF-8 sequence that starts here, or 0 if none does. */
    private int sequence(int at, int end) {
        int first = line[at] & 0xFF;
        int bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
        if (first < 0xC2 || first > 0xF4 || at + bytes > end) {
            return 0;
        }
        int low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
        int high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
        for (int next = at + 1; next < at + bytes; next++, low = 0x80, high = 0xBF) {
            int letter = line[next] & 0xFF;
            if (letter < low || letter > high) {
                return 0;
            }
        }
        return bytes;
    }

    private boolean isTime(int begin, int end) {
        if (end - begin != 14) {
            return false;
        }
        for (int at = begin; at < end; at++) {
            if (!isDigit(line[at])) {
                return false;
            }
        }
        int year = 100 * pair(begin) + pair(begin + 2);
        int month = pair(begin + 4);
        int day = pair(begin + 6);
        boolean leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        return year > 0
                && month >= 1
                && month <= 12
                && day >= 1
                && day <= (month == 2 && !leap ? 28 : DAYS[month])
                && pair(begin + 8) < 24
                && pair(begin + 10) < 60
                && pair(begin + 12) < 60;
    }

    private int pair(int at) {
        return 10 * (line[at] - '0') + line[at + 1] - '0';
    }

    private boolean isPort(int begin, int end) {
        int port = 0;
        for (int at = begin; at < end; at++) {
            if (!isDigit(line[at])) {
                return false;
            }
            port = 10 * port + line[at] - '0';
            if (port > 65_535) {
                return false;
            }
        }
        return begin < end;
    }

    private boolean isAddress(int field) {
        return isIpv4(begins[field], ends[field]) || isIpv6(begins[field], ends[field]);
    }

    private boolean isIpv4(int at, int end) {
        for (int octet = 0; octet < 4; octet++) {
            if (octet > 0 && (at >= end || line[at++] != '.')) {
                return false;
            }
            int begin = at;
            int value = 0;
            while (at < end && at - begin < 3 && isDigit(line[at])) {
                value = 10 * value + line[at++] - '0';
            }
            if (at == begin || value > 255 || at - begin > 1 && line[begin] == '0') {
                return false;
            }
        }
        return at == end;
    }

    private boolean isIpv6(int at, int end) {
        int groups = 0;
        boolean gap = false;
        if (at + 1 < end && line[at] == ':' && line[at + 1] == ':') {
            gap = true;
            at += 2;
        }
        while (at < end) {
            int begin = at;
            while (at < end && isHex(line[at])) {
                at++;
            }
            if (at < end && line[at] == '.') {
                return isIpv4(begin, end) && isWhole(groups + 2, gap);
            }
            if (at == begin || at - begin > 4) {
                return false;
            }
            groups++;
            if (at == end) {
                break;
            }
            if (line[at++] != ':' || at == end) {
                return false;
            }
            if (line[at] == ':') {
                if (gap) {
                    return false;
                }
                gap = true;
                at++;
            }
        }
        return isWhole(groups, gap);
    }

    private static boolean isWhole(int groups, boolean gap) {
        return gap ? groups < 8 : groups == 8;
    }

    private static boolean isDigit(byte letter) {
        return letter >= '0' && letter <= '9';
    }

    private static boolean isHex(byte letter) {
        return isDigit(letter) || letter >= 'a' && letter <= 'f' || letter >= 'A' && letter <= 'F';
    }

    private static boolean isBlank(byte letter) {
        return letter == ' ' || letter == '\t';
    }

    private static int[] skips() {
        int[] skips = new int[256];
        Arrays.fill(skips, SEPARATOR.length);
        for (int at = 0; at < SEPARATOR.length - 1; at++) {
            skips[SEPARATOR[at]] = SEPARATOR.length - 1 - at;
        }
        return skips;
    }

    private static byte[] ascii(String text) {
        return text.getBytes(java.nio.charset.StandardCharsets.US_ASCII);
    }
}

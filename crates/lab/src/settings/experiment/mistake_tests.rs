use super::tests::*;

#[test]
fn mistake_has_position_and_remedy() {
    let with = |more: &str| error_of(&format!("{SMALL}{more}"));
    for (more, error) in [
        ("nam = 1\n", "3:1: unknown key `nam`; known: name"),
        (
            "name = \"a\"\n",
            "3:1: the group is named `thin` by its table",
        ),
        (
            "host = \"a\"\n",
            "3:8: unknown host `a`; describe it in [host.a]",
        ),
        (
            "rtt = \"100ms+\"\n",
            "3:7: invalid duration ``: expected a number and a unit",
        ),
        (
            "bundle = 1\n",
            "3:10: `1`; expected true, false, or options",
        ),
        ("bundle = { thin = \"x\" }\n", "3:19: `x`; expected dpifl"),
        (
            "bundle = { target = \"5%\", copies = 1 }\n",
            "3:21: `target` ",
        ),
        (
            "[defaults]\nbundle = { target = \"5%\", copies = 1 }\n",
            "4:21: `target` ",
        ),
        (
            "kind = \"greedy\"\n",
            "1:1: the greedy streams of `thin` need a rate",
        ),
        ("itt = 0\n", "3:7: "),
        (
            "mechanisms = { er = true }\n",
            "3:16: unknown key `er`; known: linear-timeouts",
        ),
        (
            "mechanisms = { tlp = 2 }\n",
            "3:22: `2`; expected true or false",
        ),
        (
            "mechanisms = { early-retransmit = \"x\" }\n",
            "3:35: `x`; expected true or false or \"delayed\"",
        ),
        (
            "mechanisms = { initial-window = 0 }\n",
            "3:33: `0`; expected segments, 1 to 1000",
        ),
        (
            "mechanisms = { initial-window = true }\n",
            "3:33: `true`; expected segments, 1 to 1000",
        ),
        (
            "mechanisms = { like = \"linux-2.4\" }\n",
            "3:23: `linux-2.4`; expected \"linux-2.6.34\" or \"linux-3.12\"",
        ),
        (
            "kind = \"datagrams\"\nrate = 1\nbundle = true\n",
            "5:10: datagrams cannot be bundled",
        ),
        (
            "kind = \"flow\"\nconnects-at-start = true\n",
            "4:21: `connects-at-start` does not apply to flows",
        ),
        (
            "[kernel]\nticks-per-second = 333\n",
            "4:20: `333`; expected 100, 250, 300 or 1000",
        ),
        (
            "[bottleneck]\nrate = 0\n",
            "4:8: `0`; expected Mbit/s above 0",
        ),
        (
            "[bottleneck]\nlimit = \"1 kB\"\n",
            "4:9: `1 kB`; expected packets",
        ),
        (
            "[bottleneck.back]\nqueue = \"cake\"\nshaper = \"tbf\"\n",
            "5:10: cake shapes by itself",
        ),
        (
            "[bottleneck]\nqueue = \"cake\"\nrate = 1\nburst = 3000\n",
            "6:9: cake shapes by itself; remove `burst`",
        ),
        (
            "[bottleneck]\ntrace = \"lte.down\"\n",
            "4:9: invalid trace `lte.down`: expected \"file:FILE\"",
        ),
        (
            "[bottleneck]\ntrace = \"list:1\"\nrate = 5\n",
            "5:8: `trace` replaces `rate`; remove one of them",
        ),
        (
            "[bottleneck.back]\ntrace = \"list:1\"\nqueue = \"fq_codel\"\n",
            "5:9: a recorded link has only `pfifo`; use it, or `rate` instead of `trace`",
        ),
        (
            "[bottleneck]\ntrace = \"list:1\"\noptions = \"x\"\n",
            "5:11: a recorded link has no options of `tc`",
        ),
        (
            "[bottleneck]\ntrace = \"list:1\"\nlimit = 65537\n",
            "5:9: a recorded link has a queue of 1 to 65536 packets",
        ),
        (
            "[bottleneck]\ntrace = \"list:1\"\nlimit = \"9 B\"\n",
            "5:9: pfifo counts packets; set its limit in packets",
        ),
        (
            "[bottleneck]\nburst = 3000\n",
            "4:9: `burst` needs `rate`; set it, or remove `burst`",
        ),
        (
            "[bottleneck.back]\nshaper = \"tbf\"\n",
            "4:10: `shaper` needs `rate`; set it, or remove `shaper`",
        ),
        (
            "[bottleneck.back]\nlimit = \"1 BDP\"\n",
            "4:9: a limit in bandwidth-delay products needs a rate",
        ),
        (
            "[bottleneck.back]\nback = {}\n",
            "4:1: unknown key `back`; known: rate",
        ),
        (
            "[bottleneck]\nlimit = \"1 BDP\"\n",
            "4:9: a limit in bandwidth-delay products needs",
        ),
        (
            "[bottleneck]\nqueue = \"bfifo\"\nlimit = 9\n",
            "5:9: bfifo counts bytes; set its limit in bytes",
        ),
        (
            "[path]\nloss = 101\n",
            "4:8: `101`; expected per cent, as in 2",
        ),
        ("[path]\nloss = \"gilbert-elliott:1\"\n", "4:8: "),
        ("[path]\nloss = \"steps:1=0,20=10\"\n", "4:8: "),
        ("[path]\nloss = \"steps:0=0,20=10,20=1\"\n", "4:8: "),
        (
            "[path]\nback.los = 1\n",
            "4:6: unknown key `los`; known: jitter",
        ),
        (
            "[path]\nreorder = 1\n",
            "4:11: `1`; expected per cent and milliseconds",
        ),
        (
            "[sysctl]\nnet.ipv4.tcp_sack = 1\n",
            "4:1: a table; write the parameter's name in quotes",
        ),
        (
            "[sysctl]\n\"kernel.panic\" = 1\n",
            "4:1: invalid parameter `kernel.panic`: expected a parameter of a network",
        ),
        (
            "[measure]\nsockets = 0.5\n",
            "4:11: `0.5`; expected milliseconds between samples",
        ),
        (
            "[receiver]\nread-rate = 0\n",
            "4:13: `0`; expected a whole number of at least 1",
        ),
        (
            "[receiver]\nread-rate = 1\nread-delay = 1\n",
            "4:13: `read-rate` and `read-delay` exclude each other; remove one",
        ),
        (
            "[receiver]\necho = true\nresponse-every = 1\n",
            "5:18: `echo` and `response-every` exclude each other; remove one",
        ),
        (
            "[receiver]\nresponse-every = 1\nresponse-size = 1048577\n",
            "5:17: `1048577`; expected bytes, 1 to 1048576",
        ),
        (
            "[receiver]\nresponse-size = 9\n",
            "4:17: `response-size` needs `response-every`; set that as well",
        ),
        (
            "[grid]\npath.loss = 1\n",
            "4:13: `1`; expected a list of values",
        ),
        (
            "[grid]\npath.loss = [1, 200]\n",
            "4:17: `200`; expected per cent",
        ),
        (
            "[variant]\n",
            "3:1: no variants; start each with [variant.NAME]",
        ),
        (
            "[variant.a]\npath.rtt = \"x\"\n",
            "4:12: `x`; expected milliseconds",
        ),
        (
            "host = \"x\"\n[host.x]\nfq = true\ndelay = 1\n",
            "5:6: fq and a delay of the link exclude each other; set the delay in [path]",
        ),
        (
            "[host.x]\nspeed = 1\n",
            "4:1: unknown key `speed`; known: rate",
        ),
        (
            "[bottle]\n",
            "3:2: unknown key `bottle`; known: title, duration, seed, memory, kernel, bottleneck, ",
        ),
    ] {
        let found = with(more);
        assert!(found.starts_with(error), "{more}: {found}");
        assert!(!found.contains('\n'), "{more}: {found}");
    }
}

#[test]
fn missing_group_or_duration_is_reported() {
    assert!(error_of("duration = 5\n").starts_with("1:1: missing group; start one with"));
    assert!(
        error_of("[group.a]\n").starts_with("1:1: missing `duration`; set the seconds of sending")
    );
}

#[test]
fn groups_on_one_host_must_agree_on_mechanisms() {
    let group =
        |name, switch| format!("[group.{name}]\nhost = \"h\"\nmechanisms = {{ tlp = {switch} }}\n");
    let file = |second| {
        let (a, b) = (group("a", "true"), group("b", second));
        format!("duration = 1\n[host.h]\n{a}{b}")
    };
    assert!(load_text(&file("true")).is_ok());
    let error = error_of(&file("false"));
    assert!(
        error.contains("sets net.ipv4.tcp_early_retrans differently on host `h`"),
        "{error}"
    );
}

#[test]
fn setting_in_two_tables_is_rejected() {
    for (more, error) in [
        (
            "congestion = \"reno\"\nbundle.congestion = \"reno\"\n",
            "4:21: `congestion` is also set in the group itself; remove one of them",
        ),
        (
            "max-packets = 1\nbundle.max-packets = 1\n",
            "4:22: `max-packets` is also set in the group itself",
        ),
        (
            "mechanisms.linear-timeouts = true\nbundle.linear-timeouts = true\n",
            "4:26: `linear-timeouts` is also set in `mechanisms`",
        ),
    ] {
        let found = error_of(&format!("{SMALL}{more}"));
        assert!(found.starts_with(error), "{more}: {found}");
        assert!(!found.contains('\n'), "{more}: {found}");
    }
    let thrice = "linear-timeouts = true\nmechanisms.linear-timeouts = true\n\
                  bundle.linear-timeouts = true\n";
    let found = error_of(&format!("{SMALL}{thrice}"));
    assert!(found.starts_with("4:30: "), "{found}");
    assert!(!found.contains('\n'), "the first: {found}");
}

#[test]
fn contradiction_is_reported_before_run() {
    for (more, error) in [
        (
            "pillion = \"on\"\n",
            "3:11: `pillion` is a request, but pillion does not run on this host; set `bundle` as well",
        ),
        (
            "[path]\nrtt = 200000\n",
            "4:7: `200000`; expected milliseconds, 0 to 120000",
        ),
        (
            "[path]\nrtt = 20\nback.jitter = 3\n",
            "3:1: path: invalid backward.jitter 3ms: expected at most a quarter of the direction's",
        ),
        (
            "rtt = 10\n[path]\nrtt = 150\njitter = 3\n",
            "4:1: path: invalid forward.jitter 3ms: expected at most a quarter of the direction's",
        ),
        (
            "rtt = 10\nback = { jitter = 2 }\n[path]\nrtt = 150\njitter = 1\n",
            "4:19: jitter of more than a quarter of the delay, which is 5 ms in each direction",
        ),
        (
            "[path]\nreorder = \"60:5\"\nduplicate = 50\n",
            "3:1: path: invalid forward.disorder.duplicate 0.5: expected 0 to 1, and with",
        ),
        (
            "[bottleneck]\nqueue = \"red\"\n",
            "4:9: red needs a limit; set it in bytes",
        ),
        (
            "[group.router]\n",
            "3:1: `router` is a machine of the testbed; rename the group or its host",
        ),
        (
            "[group.b]\nstreams = 45536\n",
            "2:2: 45537 streams in total: the maximum is 45536",
        ),
    ] {
        let found = error_of(&format!("{SMALL}{more}"));
        assert!(found.starts_with(error), "{more}: {found}");
    }
}

#[test]
fn title_with_control_character_is_rejected() {
    let error = error_of(&format!("title = \"a\\u001b[2J\"\n{SMALL}"));
    let expected = "1:9: `a\\u{1b}[2J`; expected a line of plain text, without control characters";
    assert_eq!(error, expected);
}

#[test]
fn too_long_run_name_is_rejected() {
    let named = |length: usize| {
        let name = "x".repeat(length);
        load_text(&format!("{SMALL}[variant.{name}]\ngroup.thin.itt = 7\n"))
    };
    // The name also contains ",seed=1".
    assert!(named(193).is_ok());
    let error = named(194).unwrap_err().to_string();
    assert!(
        error.contains("run names of 201 characters are too long"),
        "{error}"
    );
}

#[test]
fn all_mistakes_are_reported_together() {
    let text = "\
duration = \"long\"
[defaults]
itt = \"weibull:1\"
start = 1
[path]
loss = 200
back = { loss = \"x\", jiter = 1 }
[group.a]
bundle = { thin = \"x\", thin-rtt = 1, speed = 2 }
mechanisms = { tlp = 2, er = true }
kind = \"greedy\"
think = 3
";
    let found = error_of(text);
    let found_at: Vec<_> = found
        .lines()
        .map(|line| line.split(": ").next().unwrap())
        .collect();
    let expected = [
        "1:12", "3:7", "4:1", "6:8", "7:17", "7:22", "9:19", "9:35", "9:38", "10:22", "10:25",
    ];
    assert_eq!(found_at, expected, "{found}");
}

#[test]
fn values_with_equal_run_names_are_rejected() {
    for (values, name) in [("[[3], 1]", "1"), ("[2, 2]", "2")] {
        let error = error_of(&format!("{SMALL}[grid]\npath.loss = {values}\n"));
        let expected = format!("the values 1 and 2 are both named `loss={name}`");
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn grid_with_too_many_runs_is_rejected() {
    let values: Vec<_> = (0..400).map(|n| n.to_string()).collect();
    let values = values.join(", ");
    let error = error_of(&format!(
        "{SMALL}[grid]\npath.rtt = [{values}]\ngroup.thin.size = [{values}]\n"
    ));
    assert!(
        error.contains("160000 runs: the maximum is 100000"),
        "{error}"
    );
}

#[test]
fn invalid_claims_are_reported() {
    let two = "\
[axis.kernel.current]
[axis.n.one]
[axis.n.two]
[reproduction]
baseline = \"kernel=current\"
";
    for (reproduction, expected) in [
        (
            "[reproduction.selection.quick]\nduration = nan\n",
            "9:12: `nan`; expected seconds",
        ),
        (
            "[reproduction.selection.quick]\nrepetitions = 0\n",
            "9:15: `0`; expected a number from 1 to 10000",
        ),
        (
            "[reproduction.selection.full]\nrepetitions = 2\n",
            "the full scale always has all runs",
        ),
        (
            "[[reproduction.claim]]\nmeasure = \"rtt_ms p50\"\ndescription = \"a\"\nruns = \"\"\nat-most = 1\n",
            "claim `a`: `` takes both `kernel=current,n=one,seed=1` and `kernel=current,n=two,seed=1`",
        ),
        (
            "[[reproduction.claim]]\nmeasure = \"rtt_ms p50\"\ndescription = \"a\"\nruns = \"n=one\"\nat-most = nan\n",
            "claim `a`: give finite numbers",
        ),
        (
            "[[reproduction.claim]]\nmeasure = \"rtt_ms p50\"\ndescription = \"a\"\nruns = \"n=one\"\nat-most = 1\nat-least = 1\n",
            "8:1: claim `a`: give one of `value`, `at-most`, `at-least` and `ascending`",
        ),
        (
            "[[reproduction.claim]]\nmeasure = \"rtt_ms p50\"\ndescription = \"a\"\nruns = \"n=one\"\n",
            "8:1: claim `a`: give one of `value`",
        ),
        (
            "[[reproduction.claim]]\nmeasure = \"rtt_ms p50\"\ndescription = \"a\"\nruns = \"n=one\"\nvalue = 1\n",
            "8:1: claim `a`: `value` needs `tolerance`",
        ),
        (
            "[[reproduction.claim]]\nmeasure = \"rtt_ms p50\"\ndescription = \"a\"\nruns = \"n=one\"\nvalue = 0\ntolerance = \"15 %\"\n",
            "claim `a`: a share of 0 is 0; give `tolerance` as a number",
        ),
        (
            "[[reproduction.claim]]\nmeasure = \"rtt_ms p50\"\ndescription = \"a\"\nascending = [\"n=one\"]\n",
            "claim `a`: `ascending` needs two or more different selectors",
        ),
        (
            "[[reproduction.claim]]\nmeasure = \"rtt_ms p50\"\ndescription = \"a\"\nascending = [\"n=one\", \"n=one\"]\n",
            "claim `a`: `ascending` needs two or more different selectors",
        ),
        (
            "[[reproduction.claim]]\nmeasure = \"rtt_ms p50\"\ndescription = \"a\"\nruns = \"n=one\"\nat-most = 1\nratio-to = \"n=two\"\nminus = \"n=two\"\n",
            "claim `a`: both `ratio-to` and `minus` are given; remove one",
        ),
        (
            "[[reproduction.claim]]\nmeasure = \"rtt_ms p50\"\ndescription = \"a\"\nruns = \"n=one\"\nat-most = 1\n[[reproduction.claim]]\nmeasure = \"rtt_ms p50\"\ndescription = \"b\"\nruns = \"n=six\"\nat-most = 1\n",
            "13:1: no run matches `n=six`",
        ),
        (
            "[[reproduction.table]]\ntitle = \"t\"\ncolumns = [{ label = \"c\", measure = \"rtt_ms p50\" }]\nlines = [{ label = \"l\" }]\n",
            "8:1: table `t`: a cell's `` takes both `kernel=current,n=one,seed=1` and",
        ),
        (
            "causes = [{ runs = \"kernel=published\", description = \"old\" }]\n",
            "no run matches `kernel=published`",
        ),
        (
            "[[reproduction.claim]]\nmeasure = \"rtt_ms p50\"\ndescription = \"a\"\nruns = \"n=one\"\nat-most = 1\ntolerance = 1\n",
            "claim `a`: `tolerance` needs `value`",
        ),
        (
            "[[reproduction.claim]]\nmeasure = \"rtt_ms p50\"\ndescription = \"a\"\nruns = \"n=one\"\nascending = [\"n=one\", \"n=two\"]\n",
            "claim `a`: `ascending` already names the runs; remove `runs`",
        ),
    ] {
        let error = error_of(&format!("{SMALL}{two}{reproduction}"));
        assert!(error.contains(expected), "{error}\nnot: {expected}");
    }
    let no_baseline = two.replace("kernel=current", "kernel=curent");
    let error = error_of(&format!("{SMALL}{no_baseline}"));
    assert!(
        error.contains("7:12: no run matches `kernel=curent`"),
        "{error}"
    );
}

#[test]
fn claims_of_each_kind_need_their_evidence() {
    let error = |kind: &str, claim: &str| {
        error_of(&format!(
            "{SMALL}[axis.n.one]\n[axis.n.two]\n[reproduction]\n[[reproduction.claim]]\n\
             description = \"a\"\nmeasure = \"rtt_ms p50\"\nkind = \"{kind}\"\n{claim}"
        ))
    };
    let one = "runs = \"n=one\"\nat-most = 1\n";
    let order = "ascending = [\"n=one\", \"n=two\"]\n";
    let quote = "quote = \"b\"\n";
    for (kind, claim, expected) in [
        ("published", one.to_owned(), "needs `quote`"),
        (
            "published",
            format!("{one}{quote}"),
            "needs `against`, another case",
        ),
        ("derived", one.to_owned(), "needs `reason`"),
        ("expectation", format!("{one}{quote}"), "remove `quote`"),
        (
            "published",
            format!("{one}{quote}against = {{}}\n"),
            "`against` needs other `runs` or another `group`, or the published `value`",
        ),
        (
            "published",
            format!("{one}{quote}against = {{ runs = \"n=two\", value = 3 }}\n"),
            "`against` needs other `runs`",
        ),
        (
            "published",
            format!("{one}{quote}against = {{ value = 0.9 }}\n"),
            "includes the value of the other case",
        ),
        (
            "published",
            format!("{order}{quote}against = {{ value = 2 }}\n"),
            "`ascending` needs `runs` or `group` in `against`",
        ),
        (
            "published",
            format!("{one}{quote}against = {{ runs = \"n=six\" }}\n"),
            "no run matches `n=six`",
        ),
        (
            "published",
            format!("{one}{quote}against = {{ group = \"thick\" }}\n"),
            "unknown group `thick`",
        ),
    ] {
        let error = error(kind, &claim);
        assert!(error.contains(expected), "{claim}: {error}");
    }
}

#[test]
fn group_named_only_by_variant_needs_stream_keys() {
    let text =
        "duration = 1\n[group.thin]\n[variant.plain]\n[variant.bundled]\ngroup.thn.bundle = true\n";
    let error = error_of(text);
    assert!(
        error.contains("5:7: unknown group `thn`; the nearest is `thin`; a new group needs keys"),
        "{error}"
    );
    let new = text.replace("bundle = true\n", "bundle = true\ngroup.thn.streams = 2\n");
    assert!(load_text(&new).is_ok());
}

#[test]
fn unknown_run_is_reported_with_nearest_part() {
    let lines = "[axis.n.one]\n[axis.n.two]\n[reproduction]\n[[reproduction.claim]]\ndescription = \"a\"\n\
                 measure = \"rtt_ms p50\"\nat-most = 1\nruns = \"RUNS\"\n";
    for (runs, expected) in [
        (
            "n=onw",
            "no run matches `n=onw`: unknown part `n=onw`; the nearest is `n=one`",
        ),
        (
            "n=one,n=two",
            "no run matches `n=one,n=two`: none has all of these parts",
        ),
    ] {
        let error = error_of(&format!("{SMALL}{}", lines.replace("RUNS", runs)));
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn unknown_measure_is_reported_with_nearest() {
    let claim = "[[reproduction.claim]]\ndescription = \"a\"\nat-most = 1\n";
    let first = SMALL.lines().count() + 4;
    for (lines, expected) in [
        (
            "measure = \"ack_latncy_ms p97\"\n",
            format!("{first}:11: unknown measure `ack_latncy_ms`; the nearest is `ack_latency_ms`"),
        ),
        (
            "measure = \"ack_latency_ms p9x\"\n",
            format!("{first}:11: unknown statistic `p9x` of `ack_latency_ms`; known: p0 to p100"),
        ),
        (
            "measure = \"rtt_ms p50\"\nratio-to-measure = \"rtt p50\"\n",
            format!(
                "{}:20: unknown measure `rtt`; the nearest is `rtt_ms`",
                first + 1
            ),
        ),
        (
            "measure = \"ack_latency_ms\"\n",
            "claim `a`: the measure has several values; add a statistic".to_owned(),
        ),
    ] {
        let error = error_of(&format!("{SMALL}{claim}{lines}"));
        assert!(error.contains(&expected), "{error}\nnot: {expected}");
    }
}

#[test]
fn unknown_group_of_claim_is_reported() {
    const TEXT: &str = "\
duration = 10
[reproduction]
[[reproduction.claim]]
description = \"a\"
measure = \"rtt_ms p50\"
at-most = 1
GROUP
[group.thin]
[group.greedy]
kind = \"greedy\"
[bottleneck]
rate = 1
";
    for (group, expected) in [
        (
            "",
            "3:1: claim `a`: missing `group`; seed=1 has: greedy, thin",
        ),
        (
            "group = \"thick\"",
            "3:1: claim `a`: unknown group `thick`; seed=1 has: greedy, thin",
        ),
        (
            "group = \"thin\"\nratio-to-group = \"x\"",
            "3:1: claim `a`: unknown group `x`; seed=1 has: greedy, thin",
        ),
    ] {
        let error = error_of(&TEXT.replace("GROUP", group));
        assert!(error.contains(expected), "{error}");
    }
    let right = "group = \"thin\"\nratio-to-group = \"greedy\"";
    assert!(load_text(&TEXT.replace("GROUP", right)).is_ok());
}

#[test]
fn host_unused_in_all_runs_is_rejected() {
    let text = "duration = 1\n[group.thin]\n[host.thni]\nrate = 5\n";
    let error = error_of(text);
    let expected = "3:1: no group uses host `thni`; set `host = \"thni\"` in a group, or remove it";
    assert!(error.contains(expected), "{error}");
    let both = "[variant.a]\n[variant.b]\ngroup.thin.host = \"thni\"\n";
    let runs = load_text(&format!("{text}{both}")).unwrap().runs;
    let hosts: Vec<_> = runs
        .iter()
        .map(|it| it.plan.hosts[0].name.as_str())
        .collect();
    assert_eq!(hosts, ["thin", "thni"]);
    assert!(runs[0].run.host.is_empty(), "the run is valid by itself");
}

#[test]
fn empty_axis_is_rejected_with_remedy() {
    let error = error_of(&format!("{SMALL}[axis.n]\n"));
    assert!(error.contains("start each with [axis.n.NAME]"), "{error}");
}

#[test]
fn value_overridden_in_every_run_is_rejected() {
    let load = |more: &str| load_text(&format!("{SMALL}{more}")).map_err(|it| it.to_string());
    let grid = "[grid]\ngroup.thin.itt = [30, 40]\n";
    let error = load(&format!(
        "[variant.a]\ngroup.thin.itt = 1\n[variant.b]\n{grid}"
    ))
    .unwrap_err();
    let expected = "4:18: `group.thin.itt` is overridden by a later variation in every run";
    assert!(error.contains(expected), "{error}");
    let error =
        load("[variant.a]\npath.loss = 1\n[axis.n.x]\npath.loss = 2\n[axis.n.y]\npath.loss = 3\n");
    assert!(error.unwrap_err().contains("`path.loss` is overridden"));
    // The value applies where one of the later choices does not replace it.
    load("[variant.a]\npath.loss = 1\n[axis.n.x]\n[axis.n.y]\npath.loss = 3\n").unwrap();
    load("[variant.a]\npath.loss = 1\n[grid]\npath.rtt = [1, 2]\n").unwrap();
}

#[test]
fn too_long_group_name_is_rejected() {
    let named = |length| load_text(&format!("duration = 1\n[group.{}]\n", "a".repeat(length)));
    named(200).unwrap();
    let error = named(201).unwrap_err().to_string();
    let expected =
        "2:8: name of 201 characters: the maximum is 200, because files are named after it";
    assert!(error.contains(expected), "{error}");
}

use super::tests::*;

#[test]
fn mistakes_are_told_with_their_place_and_remedy() {
    let with = |more: &str| mistake(&format!("{SMALL}{more}"));
    for (more, told) in [
        ("nam = 1\n", "3:1: unknown key `nam`; known: name"),
        (
            "name = \"a\"\n",
            "3:1: a group's name is that of its table, here `thin`",
        ),
        (
            "host = \"a\"\n",
            "3:8: no host `a`; describe it in [host.a]",
        ),
        ("rtt = \"100+\"\n", "3:7: `100+`; expected milliseconds"),
        ("bundle = 1\n", "3:10: `1`; expected true, false, or how"),
        ("bundle = { thin = \"x\" }\n", "3:19: `x`; expected dpifl"),
        (
            "bundle = { target = 5 }\n",
            "3:21: `target` is for level = \"adaptive\"; give that, too",
        ),
        (
            "[defaults]\nbundle = { target = 5 }\n",
            "4:21: `target` is for level = \"adaptive\"; give that, too",
        ),
        (
            "kind = \"greedy\"\n",
            "1:1: the greedy streams of `thin` have no rate",
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
            "mechanisms = { as-in = \"linux-2.4\" }\n",
            "3:24: `linux-2.4`; expected \"linux-2.6.34\" or \"linux-3.12\"",
        ),
        (
            "kind = \"datagrams\"\nrate = 1\nbundle = true\n",
            "5:10: datagrams are not TCP's",
        ),
        (
            "kind = \"flow\"\nconnects-at-start = true\n",
            "4:21: flows connect when each starts",
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
            "5:10: cake keeps to the rate by itself",
        ),
        (
            "[bottleneck]\nqueue = \"cake\"\nrate = 1\nburst = 3000\n",
            "6:9: cake keeps to the rate by itself; leave `burst` out",
        ),
        (
            "[bottleneck]\nburst = 3000\n",
            "4:9: without a rate nothing is shaped; give `rate`, or leave `burst` out",
        ),
        (
            "[bottleneck.back]\nshaper = \"tbf\"\n",
            "4:10: without a rate nothing is shaped; give `rate`, or leave `shaper` out",
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
            "5:9: bfifo counts bytes; give its limit in bytes",
        ),
        (
            "[path]\nloss = 101\n",
            "4:8: `101`; expected per cent, as in 2",
        ),
        ("[path]\nloss = \"gilbert-elliott:1\"\n", "4:8: "),
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
            "4:1: `kernel.panic` is no parameter of a network",
        ),
        (
            "[measure]\nsockets = 0.5\n",
            "4:11: `0.5`; expected milliseconds between samples",
        ),
        (
            "[receiver]\nread-rate = 0\n",
            "4:13: `0`; expected a whole number from 1 on",
        ),
        (
            "[receiver]\nread-rate = 1\nread-delay = 1\n",
            "4:13: `read-rate` says when to read, and so does `read-delay`; keep one",
        ),
        (
            "[receiver]\necho = true\nanswer-every = 1\n",
            "5:16: `echo` sends back all that comes, and `answer-every` something else",
        ),
        (
            "[receiver]\nanswer-every = 1\nanswer-size = 1048577\n",
            "5:15: `1048577`; expected bytes, 1 to 1048576",
        ),
        (
            "[receiver]\nanswer-size = 9\n",
            "4:15: `answer-size` is that of the answers which `answer-every` asks for",
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
            "3:1: no variant; begin each with [variant.NAME]",
        ),
        (
            "[variant.a]\npath.rtt = \"x\"\n",
            "4:12: `x`; expected milliseconds",
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
        assert!(found.starts_with(told), "{more}: {found}");
        assert!(!found.contains('\n'), "{more}: {found}");
    }
}

#[test]
fn what_an_experiment_needs_is_asked_for() {
    assert!(mistake("duration = 5\n").starts_with("1:1: no group of streams; begin one with"));
    assert!(mistake("[group.a]\n").starts_with("1:1: no `duration`; say for how many seconds"));
}

#[test]
fn groups_on_one_host_agree_on_its_mechanisms() {
    let group =
        |name, switch| format!("[group.{name}]\nhost = \"h\"\nmechanisms = {{ tlp = {switch} }}\n");
    let file = |second| {
        let (a, b) = (group("a", "true"), group("b", second));
        format!("duration = 1\n[host.h]\n{a}{b}")
    };
    assert!(load_text(&file("true")).is_ok());
    let told = mistake(&file("false"));
    assert!(
        told.contains("sets net.ipv4.tcp_early_retrans otherwise on host `h`"),
        "{told}"
    );
}

#[test]
fn what_is_said_in_two_places_is_a_mistake() {
    for (more, told) in [
        (
            "congestion = \"reno\"\nbundle.congestion = \"reno\"\n",
            "4:21: `congestion` is said in the group itself as well as here; keep one of them",
        ),
        (
            "max-packets = 1\nbundle.max-packets = 1\n",
            "4:22: `max-packets` is said in the group itself as well as here",
        ),
        (
            "mechanisms.linear-timeouts = true\nbundle.linear-timeouts = true\n",
            "4:26: `linear-timeouts` is said in `mechanisms` as well as here",
        ),
    ] {
        let found = mistake(&format!("{SMALL}{more}"));
        assert!(found.starts_with(told), "{more}: {found}");
        assert!(!found.contains('\n'), "{more}: {found}");
    }
    let thrice = "linear-timeouts = true\nmechanisms.linear-timeouts = true\n\
                  bundle.linear-timeouts = true\n";
    let found = mistake(&format!("{SMALL}{thrice}"));
    assert!(found.starts_with("4:30: "), "{found}");
    assert!(!found.contains('\n'), "the first: {found}");
}

#[test]
fn what_would_fail_in_the_run_is_a_mistake_of_the_file() {
    for (more, told) in [
        (
            "pillion = \"on\"\n",
            "3:11: `pillion` asks a pillion that is not there; give `bundle` as well",
        ),
        (
            "[path]\nrtt = 200000\n",
            "4:7: `200000`; expected milliseconds, 0 to 120000",
        ),
        (
            "[path]\nrtt = 20\nback.jitter = 3\n",
            "3:1: path: backward.jitter is 3ms; it must be at most a quarter of the direction's",
        ),
        (
            "rtt = 10\n[path]\nrtt = 150\njitter = 3\n",
            "4:1: path: forward.jitter is 3ms; it must be at most a quarter of the direction's",
        ),
        (
            "rtt = 10\nback = { jitter = 2 }\n[path]\nrtt = 150\njitter = 1\n",
            "4:19: varies by more than a quarter of the delay, which is 5 ms each way",
        ),
        (
            "[path]\nreorder = \"60:5\"\nduplicate = 50\n",
            "3:1: path: forward.disorder.duplicate is 0.5; it must be 0 to 1, and with",
        ),
        (
            "[bottleneck]\nqueue = \"red\"\n",
            "4:9: red has no limit of its own; give one in bytes",
        ),
        (
            "[group.router]\n",
            "3:1: `router` is a machine of the testbed's own; call the group, or its host, otherwise",
        ),
        (
            "[group.b]\nstreams = 45536\n",
            "2:2: 45537 streams in all; 45536 are the most",
        ),
    ] {
        let found = mistake(&format!("{SMALL}{more}"));
        assert!(found.starts_with(told), "{more}: {found}");
    }
}

#[test]
fn a_title_is_a_line_of_plain_text() {
    let told = mistake(&format!("title = \"a\\u001b[2J\"\n{SMALL}"));
    let expected = "1:9: `a\\u{1b}[2J`; expected a line of plain text, without control characters";
    assert_eq!(told, expected);
}

#[test]
fn names_of_runs_are_no_longer_than_files_can_have() {
    let named = |length: usize| {
        let name = "x".repeat(length);
        load_text(&format!("{SMALL}[variant.{name}]\ngroup.thin.itt = 7\n"))
    };
    // Behind it comes ",seed=1".
    assert!(named(193).is_ok());
    let told = named(194).unwrap_err().to_string();
    assert!(
        told.contains("names of runs would have 201 characters"),
        "{told}"
    );
}

#[test]
fn every_mistake_of_a_file_is_told() {
    let text = "\
duration = \"long\"
[defaults]
itt = \"weibull:1\"
start = 1
[path]
loss = 200
back = { loss = \"x\", jiter = 1 }
[group.a]
bundle = { thin = \"x\", rtt = 1, speed = 2 }
mechanisms = { tlp = 2, er = true }
kind = \"greedy\"
think = 3
";
    let found = mistake(text);
    let found_at: Vec<_> = found
        .lines()
        .map(|line| line.split(": ").next().unwrap())
        .collect();
    let expected = [
        "1:12", "3:7", "4:1", "6:8", "7:17", "7:22", "9:19", "9:30", "9:33", "10:22", "10:25",
    ];
    assert_eq!(found_at, expected, "{found}");
}

#[test]
fn values_that_would_give_two_runs_one_name_are_refused() {
    for (values, name) in [("[[3], 1]", "1"), ("[2, 2]", "2")] {
        let said = mistake(&format!("{SMALL}[grid]\npath.loss = {values}\n"));
        let told = format!("the values 1 and 2 would both be called `loss={name}`");
        assert!(said.contains(&told), "{said}");
    }
}

#[test]
fn a_grid_that_would_take_forever_is_refused() {
    let values: Vec<_> = (0..400).map(|n| n.to_string()).collect();
    let values = values.join(", ");
    let told = mistake(&format!(
        "{SMALL}[grid]\npath.rtt = [{values}]\ngroup.thin.size = [{values}]\n"
    ));
    assert!(told.contains("160000 runs; 100000 are the most"), "{told}");
}

#[test]
fn numbers_that_cannot_be_judged_are_told() {
    let two = "\
[axis.kernel.today]
[axis.n.one]
[axis.n.two]
[reproduction]
today = \"kernel=today\"
";
    let told = |reproduction: &str| mistake(&format!("{SMALL}{two}{reproduction}"));
    for (reproduction, what) in [
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
            "the full extent always has all runs",
        ),
        (
            "[[reproduction.published]]\nmeasure = \"rtt_ms p50\"\nwhat = \"a\"\nruns = \"\"\nat-most = 1\n",
            "published `a`: `` takes both `kernel=today,n=one,seed=1` and `kernel=today,n=two,seed=1`",
        ),
        (
            "[[reproduction.published]]\nmeasure = \"rtt_ms p50\"\nwhat = \"a\"\nruns = \"n=one\"\nat-most = nan\n",
            "published `a`: give numbers that are finite",
        ),
        (
            "[[reproduction.published]]\nmeasure = \"rtt_ms p50\"\nwhat = \"a\"\nruns = \"n=one\"\nat-most = 1\nat-least = 1\n",
            "8:1: published `a`: give one of `value`, `at-most`, `at-least` and `ascending`",
        ),
        (
            "[[reproduction.published]]\nmeasure = \"rtt_ms p50\"\nwhat = \"a\"\nruns = \"n=one\"\n",
            "8:1: published `a`: give one of `value`",
        ),
        (
            "[[reproduction.published]]\nmeasure = \"rtt_ms p50\"\nwhat = \"a\"\nruns = \"n=one\"\nvalue = 1\n",
            "8:1: published `a`: `value` wants `within`",
        ),
        (
            "[[reproduction.published]]\nmeasure = \"rtt_ms p50\"\nwhat = \"a\"\nruns = \"n=one\"\nvalue = 0\nwithin = \"15 %\"\n",
            "published `a`: a share of 0 is nothing; give `within` as a number",
        ),
        (
            "[[reproduction.published]]\nmeasure = \"rtt_ms p50\"\nwhat = \"a\"\nascending = [\"n=one\"]\n",
            "published `a`: `ascending` is an order of two or more, each once",
        ),
        (
            "[[reproduction.published]]\nmeasure = \"rtt_ms p50\"\nwhat = \"a\"\nascending = [\"n=one\", \"n=one\"]\n",
            "published `a`: `ascending` is an order of two or more, each once",
        ),
        (
            "[[reproduction.published]]\nmeasure = \"rtt_ms p50\"\nwhat = \"a\"\nruns = \"n=one\"\nat-most = 1\nover = \"n=two\"\nminus = \"n=two\"\n",
            "published `a`: it has both `over` and `minus`; leave one out",
        ),
        (
            "[[reproduction.published]]\nmeasure = \"rtt_ms p50\"\nwhat = \"a\"\nruns = \"n=one\"\nat-most = 1\n[[reproduction.published]]\nmeasure = \"rtt_ms p50\"\nwhat = \"b\"\nruns = \"n=six\"\nat-most = 1\n",
            "13:1: no run matches `n=six`",
        ),
        (
            "[[reproduction.table]]\ntitle = \"t\"\ncolumns = [{ label = \"c\", measure = \"rtt_ms p50\" }]\nlines = [{ label = \"l\" }]\n",
            "8:1: table `t`: a cell's `` takes both `kernel=today,n=one,seed=1` and",
        ),
        (
            "causes = [{ runs = \"kernel=then\", is = \"old\" }]\n",
            "no run matches `kernel=then`",
        ),
        (
            "[[reproduction.published]]\nmeasure = \"rtt_ms p50\"\nwhat = \"a\"\nruns = \"n=one\"\nat-most = 1\nwithin = 1\n",
            "published `a`: `within` belongs to `value`",
        ),
        (
            "[[reproduction.published]]\nmeasure = \"rtt_ms p50\"\nwhat = \"a\"\nruns = \"n=one\"\nascending = [\"n=one\", \"n=two\"]\n",
            "published `a`: `ascending` names its runs itself; leave out `runs`",
        ),
    ] {
        let told = told(reproduction);
        assert!(told.contains(what), "{told}\nnot: {what}");
    }
    let nothing_today = two.replace("kernel=today", "kernel=tody");
    let told = mistake(&format!("{SMALL}{nothing_today}"));
    assert!(told.contains("7:9: no run matches `kernel=tody`"), "{told}");
}

#[test]
fn group_that_only_a_choice_names_says_what_its_streams_are() {
    let text =
        "duration = 1\n[group.thin]\n[variant.plain]\n[variant.bundled]\ngroup.thn.bundle = true\n";
    let told = mistake(text);
    assert!(
        told.contains("5:7: unknown group `thn`; the nearest is `thin`; a new one says what"),
        "{told}"
    );
    let new = text.replace("bundle = true\n", "bundle = true\ngroup.thn.streams = 2\n");
    assert!(load_text(&new).is_ok());
}

#[test]
fn unknown_run_is_told_with_the_nearest_part_of_a_name() {
    let lines = "[axis.n.one]\n[axis.n.two]\n[reproduction]\n[[reproduction.published]]\nwhat = \"a\"\n\
                 measure = \"rtt_ms p50\"\nat-most = 1\nruns = \"RUNS\"\n";
    for (runs, what) in [
        (
            "n=onw",
            "no run matches `n=onw`: unknown part `n=onw`; the nearest is `n=one`",
        ),
        (
            "n=one,n=two",
            "no run matches `n=one,n=two`: none has all of these parts",
        ),
    ] {
        let told = mistake(&format!("{SMALL}{}", lines.replace("RUNS", runs)));
        assert!(told.contains(what), "{told}");
    }
}

#[test]
fn unknown_measure_is_told_with_its_place_and_the_nearest() {
    let told = |lines: &str| {
        mistake(&format!(
            "{SMALL}[[reproduction.published]]\nwhat = \"a\"\nat-most = 1\n{lines}"
        ))
    };
    let first = SMALL.lines().count() + 4;
    for (lines, what) in [
        (
            "measure = \"ack_latncy_ms p97\"\n",
            format!("{first}:11: unknown measure `ack_latncy_ms`; the nearest is `ack_latency_ms`"),
        ),
        (
            "measure = \"ack_latency_ms p9x\"\n",
            format!("{first}:11: unknown statistic `p9x` of `ack_latency_ms`; known: p0 to p100"),
        ),
        (
            "measure = \"rtt_ms p50\"\nover-measure = \"rtt p50\"\n",
            format!(
                "{}:16: unknown measure `rtt`; the nearest is `rtt_ms`",
                first + 1
            ),
        ),
        (
            "measure = \"ack_latency_ms\"\n",
            "published `a`: the measure has more than one value; ask for a statistic".to_owned(),
        ),
    ] {
        let told = told(lines);
        assert!(told.contains(&what), "{told}\nnot: {what}");
    }
}

#[test]
fn a_group_that_the_runs_of_a_number_do_not_have_is_told() {
    const TEXT: &str = "\
duration = 10
[reproduction]
[[reproduction.published]]
what = \"a\"
measure = \"rtt_ms p50\"
at-most = 1
GROUP
[group.thin]
[group.greedy]
kind = \"greedy\"
[bottleneck]
rate = 1
";
    for (group, what) in [
        (
            "",
            "3:1: published `a`: missing `group`; seed=1 has: greedy, thin",
        ),
        (
            "group = \"thick\"",
            "3:1: published `a`: unknown group `thick`; seed=1 has: greedy, thin",
        ),
        (
            "group = \"thin\"\nover-group = \"x\"",
            "3:1: published `a`: unknown group `x`; seed=1 has: greedy, thin",
        ),
    ] {
        let told = mistake(&TEXT.replace("GROUP", group));
        assert!(told.contains(what), "{told}");
    }
    let right = "group = \"thin\"\nover-group = \"greedy\"";
    assert!(load_text(&TEXT.replace("GROUP", right)).is_ok());
}

#[test]
fn a_host_that_no_streams_come_from_is_a_mistake_unless_another_run_has_it() {
    let text = "duration = 1\n[group.thin]\n[host.thni]\nrate = 5\n";
    let said = mistake(text);
    let told = "3:1: no streams come from `thni`; give a group `host = \"thni\"`, or leave it out";
    assert!(said.contains(told), "{said}");
    let both = "[variant.a]\n[variant.b]\ngroup.thin.host = \"thni\"\n";
    let runs = load_text(&format!("{text}{both}")).unwrap().runs;
    let hosts: Vec<_> = runs
        .iter()
        .map(|it| it.plan.hosts[0].name.as_str())
        .collect();
    assert_eq!(hosts, ["thin", "thni"]);
    assert!(runs[0].run.host.is_empty(), "it stays right by itself");
}

#[test]
fn an_axis_without_a_choice_says_how_one_begins() {
    let said = mistake(&format!("{SMALL}[axis.n]\n"));
    assert!(said.contains("begin each with [axis.n.NAME]"), "{said}");
}

#[test]
fn a_value_that_a_later_choice_replaces_in_every_run_is_refused() {
    let told = |more: &str| load_text(&format!("{SMALL}{more}")).map_err(|it| it.to_string());
    let grid = "[grid]\ngroup.thin.itt = [30, 40]\n";
    let said = told(&format!(
        "[variant.a]\ngroup.thin.itt = 1\n[variant.b]\n{grid}"
    ))
    .unwrap_err();
    let why = "4:18: `group.thin.itt` is varied again behind this, so that this has no effect";
    assert!(said.contains(why), "{said}");
    let said =
        told("[variant.a]\npath.loss = 1\n[axis.n.x]\npath.loss = 2\n[axis.n.y]\npath.loss = 3\n");
    assert!(said.unwrap_err().contains("`path.loss` is varied again"));
    // Where one of the choices behind leaves it, it holds there.
    told("[variant.a]\npath.loss = 1\n[axis.n.x]\n[axis.n.y]\npath.loss = 3\n").unwrap();
    told("[variant.a]\npath.loss = 1\n[grid]\npath.rtt = [1, 2]\n").unwrap();
}

#[test]
fn names_of_groups_are_no_longer_than_files_can_have() {
    let named = |length| load_text(&format!("duration = 1\n[group.{}]\n", "a".repeat(length)));
    named(200).unwrap();
    let said = named(201).unwrap_err().to_string();
    let why = "2:8: a name of 201 characters; 200 are the most, for files are called by it";
    assert!(said.contains(why), "{said}");
}

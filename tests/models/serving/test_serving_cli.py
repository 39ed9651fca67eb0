# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The command, its environment and the tiny checkpoint, without vLLM."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from models.llama31_8b.serving import cli
from models.llama31_8b.serving.environment import ServingEnvironmentError, common_requirements
from models.llama31_8b.serving.settings import model_settings
from models.llama31_8b.tt.mesh import MeshShape


def sdist(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def test_requirements_take_an_opencv_for_numpy_below_2(tmp_path):
    listed = "numpy\nopencv-python-headless >= 4.13.0 # videos\nopenai\n"
    found = common_requirements(sdist(tmp_path / "a.tar.gz", {"vllm-1/requirements/common.txt": listed}))
    assert found == "numpy\nopencv-python-headless==4.11.0.86\nopenai\n"
    with pytest.raises(ServingEnvironmentError, match="b.tar.gz has no requirements/common.txt"):
        common_requirements(sdist(tmp_path / "b.tar.gz", {"vllm-1/README.md": "x"}))


@pytest.mark.parametrize(
    "options, message",
    [
        (["--plugin", "{folder}"], "is not a clone of github.com/tenstorrent/vllm-tt-plugin"),
        (["--plugin", "{folder}", "--mesh", "3x1"], "no mesh 3x1; supported: 1x1"),
        (["--plugin", "{plugin}", "--threshold", "0.1"], "threshold have no effect with exact attention"),
        (["--plugin", "{prefilling}"], "prefills each token (vllm-tt-plugin's issue 66): check out b95c050 or later"),
    ],
)
def test_refusals_are_one_line(tmp_path, capsys, options, message):
    folders = {"folder": tmp_path, "plugin": tmp_path / "plugin", "prefilling": tmp_path / "prefilling"}
    for name, computed in (("plugin", "[row] + 1\n"), ("prefilling", "[row]")):
        runner = folders[name] / "src" / "vllm_tt_plugin" / "model_runner.py"
        runner.parent.mkdir(parents=True)
        runner.write_text(
            f"return (\n    input_batch.num_computed_tokens_cpu{computed} < input_batch.num_tokens[row]\n)"
        )
    named = [option.format_map(folders) for option in options]
    try:
        code = cli.main(named)
    except SystemExit as ended:
        code = ended.code
    error = capsys.readouterr().err
    assert code == 2 and error.count("\n") == 1 and message in error


@pytest.mark.parametrize(
    "overrides, optimizations, message",
    [
        ({"drafts": 1}, None, "no setting 'drafts'"),
        ({"precision": "accuracy"}, "performance", "name one of them"),
        ({"precision": "fast"}, None, "no precision 'fast'"),
        ({"threshold": 0.1}, None, "threshold have no effect with exact attention"),
        ({"attention": "sink"}, None, "no attention policy 'sink'; policies: exact, alspec"),
    ],
)
def test_settings_that_mean_nothing_are_refused(overrides, optimizations, message):
    with pytest.raises(ValueError, match=message):
        model_settings(overrides, optimizations, 3)


def test_settings_reach_the_model():
    found = model_settings({"attention": "alspec", "chunk_size": 64, "threshold": 0.2}, "accuracy", 4)
    attention = found["attention"]
    assert (attention.policy, attention.chunk_size, attention.threshold) == ("alspec", 64, 0.2)
    assert (found["precision"], found["users"]) == ("accuracy", 4)


def test_command_line_and_environment(tmp_path):
    options = cli._parse("--plugin p --device sim --mesh 2x1 --attention alspec --users 2 -- --seed 3".split())
    line = cli.command(Path("python"), "folder", options, {"attention": "alspec"})
    server = line[line.index("--") + 1 :]
    assert line[:4] == ["python", "-m", "runtime_patches.simulated_n150", "run"]
    assert line[line.index("--patch") + 1] == "runtime_patches.sgdc"
    assert line[line.index("--mesh") + 1] == "2x1"
    assert server[:3] == ["python", "-m", "models.llama31_8b.serving.on_simulator"] and server[-2:] == ["--seed", "3"]
    assert json.loads(server[server.index("--hf-overrides") + 1]) == {"alspec": {"attention": "alspec"}}
    assert json.loads(server[3])["tt"]["fabric_config"] == "FABRIC_1D"
    assert server[server.index("--max-num-batched-tokens") + 1] == "512", "a context, at most a chunk"
    long = cli._parse(["--plugin", "p", "--context", "65536"])
    assert "--max-num-batched-tokens 2048" in " ".join(cli.command(Path("python"), "folder", long, {}))
    variables = cli.environment(MeshShape(2, 1))
    assert variables["MESH_DEVICE"] == "(2, 1)"
    described = json.loads((Path(variables["EXTRA_MODELS_DIR"]) / "llama" / "vllm_metadata.json").read_text())
    module, name = described["main_class"].split(":")
    assert described["arch"] == "LlamaForCausalLM" and hasattr(__import__(module, fromlist=[name]), name)

#!/bin/sh
# A Spark cluster on this machine, a master and two workers on loopback, to try a job as a cluster runs it:
#   deploy/standalone/cluster.sh start      deploy/standalone/cluster.sh stop
# Executors have an interpreter without any package (build/bare), so all that they need has to be shipped.
set -eu
cd "$(dirname "$0")/../.."
port=${ISR_BATCH_MASTER_PORT:-17077}
run=build/cluster
spark_home=$(.venv/bin/python -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)')
export SPARK_HOME="$spark_home" SPARK_NO_DAEMONIZE=1

begin() { # name, class, arguments
  name=$1
  shift
  "$spark_home/bin/spark-class" "$@" >"$run/$name.log" 2>&1 &
  echo $! >"$run/$name.pid"
}

case ${1:-} in
start)
  mkdir -p "$run"
  [ -x build/bare/bin/python ] || .venv/bin/python -m venv --without-pip build/bare
  begin master org.apache.spark.deploy.master.Master --host 127.0.0.1 --port "$port" --webui-port 0
  for n in 1 2; do
    begin "worker-$n" org.apache.spark.deploy.worker.Worker --host 127.0.0.1 --webui-port 0 --cores 1 --memory 1g \
      --work-dir "$PWD/$run/work-$n" "spark://127.0.0.1:$port"
  done
  echo "spark://127.0.0.1:$port"
  ;;
stop)
  for pid in "$run"/*.pid; do
    kill "$(cat "$pid")" 2>/dev/null || true
    rm -f "$pid"
  done
  ;;
*)
  sed -n '2,4s/^# //p' "$0"
  exit 2
  ;;
esac
